;;; dwell-sync.el --- Keeps Dwell's server at the buffer's text  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: a buffer's changes.  Out: textDocument/didOpen, didChange, didSave and didClose.  Changes are
;; gathered while one types and sent when Emacs is idle, or before a request about the document.
;; Positions count UTF-16 code units, as the protocol has them.

;;; Code:

(require 'dwell-client)

(defcustom dwell-change-delay 0.5
  "Seconds of idleness after which changed text is sent to the server."
  :type 'number
  :group 'dwell)

(defvar-local dwell--document nil
  "URI under which this buffer is open at the server, or nil.")

(defvar-local dwell--document-connection nil
  "Connection to the server that this buffer is open at.")

(defvar-local dwell--version 0
  "Version of the document that was sent last.")

(defvar-local dwell--changes nil
  "Changes not sent yet, last first, or `full' when only the whole text will do.")

(defvar-local dwell--change-before nil
  "Begin, end and their positions of the change that is being made.")

(defvar-local dwell--change-timer nil
  "Timer that will send the changes.")

;;;; Text and positions

(defconst dwell--not-unicode
  ;; Raw bytes must be a range of their own.
  (string ?\[ #xD800 ?- #xDFFF #x110000 ?- #x3FFF7F #x3FFF80 ?- #x3FFFFF ?\])
  "Regexp that matches what a buffer can hold and JSON cannot.")

(defun dwell--text (beg end)
  "Return the text from BEG to END as JSON can carry it.
Each raw byte becomes one replacement character, so that positions hold."
  (let ((text (buffer-substring-no-properties beg end))
        (case-fold-search nil)) ; folding a range this wide takes milliseconds
    (if (and (/= (length text) (string-bytes text))
             (string-match-p dwell--not-unicode text))
        (replace-regexp-in-string dwell--not-unicode "\uFFFD" text t t)
      text)))

(defun dwell--position (position)
  "Return POSITION in this buffer as the protocol has it."
  (save-restriction
    (widen)
    (save-excursion
      (goto-char position)
      (let ((beg (dwell--line-beginning)))
        (list :line (dwell--line-at beg)
              :character (+ (- position beg)
                            (cl-loop for i from beg below position
                                     count (<= #x10000 (char-after i) #x10FFFF))))))))

(defun dwell--line-beginning ()
  "Return where the line at point begins, whatever fields it has."
  (let ((inhibit-field-text-motion t)) (line-beginning-position)))

(defvar-local dwell--line-anchor nil
  "Begin of a line and its number: cons, right as long as changes are noted.")

(defun dwell--line-at (beg)
  "Return the number, from 0, of the line that begins at BEG.
Counting from where one typed last makes that quick in long files."
  (pcase dwell--line-anchor
    ((and `(,place . ,line) (guard (<= place (point-max))))
     (if (<= place beg)
         (+ line (count-lines place beg))
       (- line (count-lines beg place))))
    (_ (1- (line-number-at-pos beg t)))))

;;;; Opening and closing

(defun dwell--sync-kind (connection)
  "Return what CONNECTION's server wants: 0 nothing, 1 all text, 2 changes."
  (let ((sync (plist-get (dwell--capabilities connection) :textDocumentSync)))
    (cond ((numberp sync) sync)
          ((plist-get sync :change))
          (t 0))))

(defun dwell--open-document ()
  "Tell the server that this buffer's file is open."
  (let ((connection (dwell--ensure)) (buffer (current-buffer)))
    (dwell--close-document)
    (setq dwell--document (dwell--uri buffer-file-name)
          dwell--document-connection connection
          dwell--changes nil)
    (dwell--when-ready
     connection
     (lambda ()
       (when (buffer-live-p buffer)
         (with-current-buffer buffer
           (when (and dwell--document (eq connection dwell--document-connection))
             (dwell--send-open))))))))

(defun dwell--send-open ()
  "Send this buffer's whole text to the server, which is ready."
  (setq dwell--changes nil dwell--line-anchor nil)
  (jsonrpc-notify
   dwell--document-connection :textDocument/didOpen
   `(:textDocument
     (:uri ,dwell--document :version ,(cl-incf dwell--version)
      :languageId ,(string-remove-suffix "-ts" (string-remove-suffix "-mode" (symbol-name major-mode)))
      :text ,(save-restriction (widen) (dwell--text (point-min) (point-max)))))))

(defun dwell--document-live-p ()
  "Return non-nil if the server is ready and this buffer is open at it."
  (and dwell--document
       (eq 'ready (dwell--state dwell--document-connection))
       (jsonrpc-running-p dwell--document-connection)))

(defun dwell--close-document ()
  "Tell the server that this buffer's file is closed."
  (when (dwell--document-live-p)
    (jsonrpc-notify dwell--document-connection :textDocument/didClose
                    `(:textDocument (:uri ,dwell--document))))
  (when dwell--change-timer (cancel-timer dwell--change-timer))
  (setq dwell--document nil dwell--document-connection nil
        dwell--changes nil dwell--change-timer nil))

(defun dwell--saved-document ()
  "Tell the server that this buffer was saved."
  (when (dwell--document-live-p)
    (dwell--send-changes)
    (jsonrpc-notify dwell--document-connection :textDocument/didSave
                    `(:textDocument (:uri ,dwell--document)))))

;;;; Changes

(defun dwell--note-before (beg end)
  "Note where the text from BEG to END lies, which is about to change."
  (when (and (dwell--document-live-p) (listp dwell--changes)
             (= 2 (dwell--sync-kind dwell--document-connection)))
    (let* ((from (dwell--position beg))
           (to (if (= beg end) from (dwell--position end))))
      (setq dwell--change-before (list beg end from to)
            ;; What comes before this line stays as it is, and so does its number.
            dwell--line-anchor (save-restriction
                                 (widen)
                                 (save-excursion
                                   (goto-char beg)
                                   (cons (dwell--line-beginning) (plist-get from :line))))))))

(defun dwell--note-after (beg end old-length)
  "Note that OLD-LENGTH characters became the text from BEG to END."
  (when (and (dwell--document-live-p) (listp dwell--changes))
    (pcase dwell--change-before
      ((and `(,old-beg ,old-end ,from ,to)
            (guard (and (= beg old-beg) (= old-length (- old-end old-beg)))))
       (push `(:range (:start ,from :end ,to) :text ,(dwell--text beg end)) dwell--changes))
      ;; Emacs may announce more than it then changes: positions are not known any more.
      (_ (setq dwell--changes 'full dwell--line-anchor nil))))
  (setq dwell--change-before nil)
  (when (and dwell--document (not dwell--change-timer))
    (setq dwell--change-timer
          (dwell--soon dwell-change-delay #'dwell--send-changes-of (current-buffer)))))

(defun dwell--send-changes-of (buffer)
  "Send BUFFER's changes to the server."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer (dwell--send-changes))))

(defun dwell--send-changes ()
  "Send this buffer's changes to the server, if there are any."
  (when dwell--change-timer
    (cancel-timer dwell--change-timer)
    (setq dwell--change-timer nil))
  (when (and dwell--changes (dwell--document-live-p))
    (let ((kind (dwell--sync-kind dwell--document-connection)))
      (unless (eq kind 0)
        (jsonrpc-notify
         dwell--document-connection :textDocument/didChange
         `(:textDocument (:uri ,dwell--document :version ,(cl-incf dwell--version))
           :contentChanges
           ,(if (and (eq kind 2) (consp dwell--changes))
                (vconcat (reverse dwell--changes))
              (save-restriction
                (widen)
                (vector (list :text (dwell--text (point-min) (point-max)))))))))))
  (setq dwell--changes nil))

(provide 'dwell-sync)
;;; dwell-sync.el ends here
