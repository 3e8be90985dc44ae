;;; dwell-flymake.el --- Severe avoidable stalls among a buffer's problems  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's textDocument/publishDiagnostics, which it sends while `dwell-diagnostics' is on.
;; Out: a Flymake backend that notes them, beside whatever else checks the buffer.  Notes of a
;; text that was edited go until the server has spoken again.

;;; Code:

(require 'dwell-client)
(require 'dwell-sync)
(require 'dwell-words)
(require 'flymake)

(defvar-local dwell-flymake--report nil
  "Function of Flymake that takes this buffer's notes.")

(defvar-local dwell-flymake--published []
  "The server's diagnostics for this buffer.")

(defvar-local dwell-flymake--tick nil
  "`buffer-chars-modified-tick' when they came.")

(defun dwell-flymake (report &rest _)
  "Give REPORT, Flymake's function, the severe stalls of this buffer."
  (setq dwell-flymake--report report)
  ;; Of an edited text the server speaks again: what it said last may be of other lines.
  (unless (eql dwell-flymake--tick (buffer-chars-modified-tick))
    (setq dwell-flymake--published []))
  (dwell-flymake--publish))

(defun dwell-flymake--publish ()
  "Report this buffer's severe stalls."
  (when dwell-flymake--report
    (funcall dwell-flymake--report (delq nil (mapcar #'dwell-flymake--note dwell-flymake--published))
             :region (cons (point-min) (point-max)))))

(defun dwell-flymake--note (diagnostic)
  "Return DIAGNOSTIC, the server's, as Flymake's; nil where its line is no more."
  (let* ((range (plist-get diagnostic :range))
         (beg (dwell-flymake--place (plist-get range :start)))
         (end (dwell-flymake--place (plist-get range :end))))
    (when (and beg end (< beg end))
      (flymake-make-diagnostic (current-buffer) beg end :note
                               (concat "Dwell: " (plist-get diagnostic :message)
                                       (mapconcat #'dwell-flymake--related
                                                  (plist-get diagnostic :relatedInformation) ""))))))

(defun dwell-flymake--related (information)
  "Return INFORMATION, a place that a diagnostic is related to, in words."
  (let* ((location (plist-get information :location)) (uri (plist-get location :uri)))
    (format " (%s at %s:%d)" (plist-get information :message)
            (file-name-nondirectory (or (dwell--file uri) uri))
            (1+ (plist-get (plist-get (plist-get location :range) :start) :line)))))

(defun dwell-flymake--place (position)
  "Return where POSITION, of the protocol, is in this buffer, or nil."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-min))
      (when (and (zerop (forward-line (plist-get position :line))) (bolp))
        (let ((units (plist-get position :character)))
          (while (and (> units 0) (not (eolp)))
            (setq units (- units (if (<= #x10000 (char-after) #x10FFFF) 2 1)))
            (forward-char)))
        (point)))))

(defun dwell-flymake--take (_connection method params)
  "Take the diagnostics of PARAMS if METHOD says that there are new ones."
  (when (eq method 'textDocument/publishDiagnostics)
    (dolist (buffer (buffer-list))
      (when (equal (plist-get params :uri) (buffer-local-value 'dwell--document buffer))
        (with-current-buffer buffer
          (setq dwell-flymake--published (if dwell--changes [] (plist-get params :diagnostics))
                dwell-flymake--tick (buffer-chars-modified-tick))
          (dwell-flymake--publish))))))

(defun dwell-flymake--gone (connection)
  "Forget what CONNECTION's server published: it stopped."
  (dolist (buffer (buffer-list))
    (when (eq connection (buffer-local-value 'dwell--document-connection buffer))
      (with-current-buffer buffer
        (setq dwell-flymake--published [])
        (dwell-flymake--publish)))))

(add-hook 'dwell-notification-functions #'dwell-flymake--take)
(add-hook 'dwell-stopped-functions #'dwell-flymake--gone)

(provide 'dwell-flymake)
;;; dwell-flymake.el ends here
