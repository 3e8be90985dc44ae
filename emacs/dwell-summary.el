;;; dwell-summary.el --- Where the cycles go, by cause  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/summary', after Figure 4 of the DCPI paper.  Out: a table of causes, each
;; as a range and as a bar: what it explains at least is solid, what it may explain is light.

;;; Code:

(require 'dwell-client)
(require 'dwell-epoch)
(require 'dwell-lines)
(require 'dwell-table)
(require 'dwell-view)

(defvar-local dwell-summary--of nil
  "What this buffer is about: the parameters of the request.")

(defvar dwell-summary-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map "l" #'dwell-summary-listing)
    (define-key map "e" #'dwell-select-epoch)
    (define-key map "h" 'dwell-hot-procedures)
    map)
  "Keymap of `dwell-summary-mode'.")


(define-derived-mode dwell-summary-mode special-mode "Dwell-Summary"
  "Where the cycles go, by cause.

\\{dwell-summary-mode-map}"
  :interactive nil
  (setq truncate-lines t
        dwell--revisit-function #'dwell-summary--fetch)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-summary--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;###autoload
(defun dwell-summary (&optional procedure image)
  "Show where the cycles of PROCEDURE go, or of IMAGE, or of all that was sampled.
Interactively that of the function at point, else of one to choose;
with a prefix argument of everything."
  (interactive
   (unless current-prefix-arg
     (let ((here (dwell--procedures-here)))
       (list (if (and here (null (cdr here))) (car here) (dwell--read-procedure here))))))
  (let ((buffer (dwell--view-buffer (concat "summary of " (or procedure image "all")) 'dwell-summary-mode)))
    (with-current-buffer buffer
      (setq dwell-summary--of (cond (procedure (list :procedure procedure))
                                    (image (list :image image))
                                    (t (make-hash-table))))
      (dwell-summary--fetch (lambda () (pop-to-buffer buffer))))))

(defun dwell-summary--fetch (&optional then)
  "Ask for this buffer's summary, show it, then call THEN."
  (dwell--request (dwell--ensure) :dwell/summary dwell-summary--of
                  (lambda (result)
                    (dwell-summary--show result)
                    (when (functionp then) (funcall then)))
                  (lambda (problem)
                    (when (zerop (buffer-size)) (kill-buffer))
                    (message "Dwell: %s" (plist-get problem :message)))))

(defun dwell-summary--show (result)
  "Show RESULT."
  (let ((inhibit-read-only t) (place (point)))
    (erase-buffer)
    (dwell-summary--insert result)
    (goto-char (min place (point-max)))
    (set-buffer-modified-p nil)
    (setq header-line-format " l: listing  e: recordings  h: hot functions")))

(defun dwell-summary--insert (result)
  "Insert RESULT, a `SummaryResult', as text."
  (insert (propertize (plist-get (plist-get result :scope) :name) 'face 'bold) "\n"
          (dwell-summary--totals result) "\n\n")
  (insert (propertize "Dynamic stalls" 'face 'bold) "\n")
  (seq-doseq (range (plist-get result :dynamic))
    (dwell-summary--row (plist-get range :label) (plist-get range :shareMin) (plist-get range :shareMax)))
  (dwell-summary--row "Unexplained stall" (plist-get result :unexplainedStallMin)
                      (plist-get result :unexplainedStallMax))
  (dwell-summary--row "Unexplained gain" (plist-get result :unexplainedGain))
  (dwell-summary--row "Subtotal dynamic" (plist-get result :subtotalDynamicMin)
                      (plist-get result :subtotalDynamicMax) 'bold)
  (insert "\n" (propertize "Static stalls" 'face 'bold) "\n")
  (seq-doseq (part (plist-get result :staticCauses))
    (dwell-summary--row (plist-get part :label) (plist-get part :shareMin) (plist-get part :shareMax)))
  (dwell-summary--row "Subtotal static" (plist-get result :subtotalStaticMin)
                      (plist-get result :subtotalStaticMax) 'bold)
  (insert "\n")
  (dwell-summary--row "Total stall" (plist-get result :totalStallMin) (plist-get result :totalStallMax) 'bold)
  (dwell-summary--row "Execution" (plist-get result :executionMin) (plist-get result :executionMax))
  (dwell-summary--row "Net sampling error" (plist-get result :netSamplingError))
  (seq-doseq (note (plist-get result :notes)) (insert "\n" (propertize note 'face 'dwell-cost)))
  (insert "\n"))

(defun dwell-summary--totals (result)
  "Return what RESULT rests on, in one line."
  (dwell--join (plist-get result :totals)
               (dwell--epochs-in-words (plist-get result :epochs))))

(defun dwell-summary--row (label share &optional share-max face)
  "Insert LABEL, SHARE or the range from it to SHARE-MAX, and a bar, in FACE.
SHARE is nil if it is not known."
  (unless (or (null share) (and (zerop share) (zerop (or share-max 0))))
    (insert (propertize (concat (string-pad (concat "  " label) 28)
                                (string-pad (dwell-summary--range share share-max) 18 nil t))
                        'face (or face 'default))
            (dwell-summary--bar share share-max) "\n")))

(defun dwell-summary--range (share share-max)
  "Return SHARE in percent, or the range from it to SHARE-MAX."
  (cl-flet ((percent (share)
              (cond ((< (abs share) 0.0005) "0.0%")
                    ((< share 0) (concat "-" (dwell--format-share (- share))))
                    (t (dwell--format-share share)))))
    (if (or (null share-max) (= share share-max)) (percent share)
      (concat (percent share) " to " (percent share-max)))))

(defun dwell-summary--bar (share share-max)
  "Return a bar of 40 cells for all cycles: SHARE solid, up to SHARE-MAX light."
  (let* ((solid (round (* 40 (max 0 (min 1 share)))))
         (light (- (round (* 40 (max 0 (min 1 (or share-max share))))) solid))
         (plain (char-displayable-p ?█)))
    (concat (if (> (+ solid light) 0) "  " "")
            (propertize (make-string solid (if plain ?█ ?#)) 'face (dwell--heat (max share (or share-max 0))))
            (propertize (make-string (max 0 light) (if plain ?░ ?-)) 'face 'dwell-heat-low))))

(defun dwell-summary-listing ()
  "Show the listing of the function that this is the summary of."
  (interactive)
  (dwell--show 'listing (or (and (listp dwell-summary--of) (plist-get dwell-summary--of :procedure))
                     (user-error "Dwell: only functions have a listing"))))

(provide 'dwell-summary)
;;; dwell-summary.el ends here
