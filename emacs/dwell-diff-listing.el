;;; dwell-diff-listing.el --- A procedure's instructions in two builds  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/diff' of one procedure.  Out: its instructions side by side, aligned across
;; the rebuild, with what changed at each.

;;; Code:

(require 'dwell-client)
(require 'dwell-diff)
(require 'dwell-lines)
(require 'dwell-table)
(require 'diff-mode)

(defvar-local dwell-diff-instructions--asked nil
  "Parameters of the request.")

(defvar dwell-diff-instructions-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map (kbd "RET") #'dwell-diff-instructions-visit)
    (define-key map "n" #'dwell-diff-instructions-next)
    (define-key map "p" #'dwell-diff-instructions-previous)
    map)
  "Keymap of `dwell-diff-instructions-mode'.")

(define-derived-mode dwell-diff-instructions-mode special-mode "Dwell-Diff-Listing"
  "A function's instructions before and after, side by side.

\\{dwell-diff-instructions-mode-map}"
  :interactive nil
  (setq truncate-lines t
        dwell--revisit-function #'dwell-diff-instructions--fetch)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-diff-instructions--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;###autoload
(defun dwell-diff-instructions (procedure epochs)
  "Show the instructions of PROCEDURE before and after; EPOCHS says which."
  (let ((buffer (dwell--view-buffer (concat "diff of " procedure) 'dwell-diff-instructions-mode)))
    (with-current-buffer buffer
      (setq dwell-diff-instructions--asked (append (list :procedure procedure :all t) epochs))
      (dwell-diff-instructions--fetch (lambda () (pop-to-buffer buffer))))))

(defun dwell-diff-instructions--fetch (&optional then)
  "Ask for the instructions, show them, then call THEN."
  (dwell--request (dwell--ensure) :dwell/diff dwell-diff-instructions--asked
                  (lambda (result)
                    (dwell-diff-instructions--show result)
                    (when (functionp then) (funcall then)))
                  (lambda (problem)
                    ;; When the comparison ends, what was compared stays to be read.
                    (when (zerop (buffer-size))
                      (kill-buffer)
                      (message "Dwell: %s" (plist-get problem :message))))))

(defun dwell-diff-instructions--show (result)
  "Show RESULT, a `DiffResult' of one function."
  (let* ((inhibit-read-only t)
         (line (line-number-at-pos))
         (rows (plist-get result :instructions))
         (places (cl-loop for row across rows append (list (plist-get row :before) (plist-get row :after))))
         (widths (cons (dwell-diff-instructions--widest #'dwell-diff-instructions--address places)
                       (min 48 (dwell-diff-instructions--widest (lambda (place) (plist-get place :text)) places)))))
    (erase-buffer)
    (when (seq-empty-p rows)
      (insert "No instructions of this function are known: its binary is not here\n"))
    (seq-doseq (note (plist-get result :notes)) (insert (propertize note 'face 'dwell-cost) "\n"))
    (seq-doseq (row rows) (insert (dwell-diff-instructions--line row widths) "\n"))
    (setq header-line-format
          (replace-regexp-in-string "%" "%%" (concat " " (dwell-diff--title result) "   n/p: changes  RET: source") t t))
    (goto-char (point-min))
    (forward-line (1- line))
    (set-buffer-modified-p nil)))

(defun dwell-diff-instructions--widest (text places)
  "Return how wide the widest TEXT of one of PLACES is; nil has none."
  (apply #'max 0 (mapcar (lambda (place) (length (funcall text place))) (delq nil places))))

(defun dwell-diff-instructions--address (place)
  "Return the address of PLACE, a `DiffPlace', as a column."
  (string-pad (concat (dwell--hex (plist-get place :address)) "  ") 10))

(defun dwell-diff-instructions--line (row widths)
  "Return the line of ROW, a `DiffInstruction', with columns of WIDTHS."
  (let* ((kind (plist-get row :kind))
         (before (plist-get row :before)) (after (plist-get row :after))
         (text (concat (dwell-diff-instructions--side before (plist-get row :samplesBefore) widths)
                       (pcase kind ("edited" " ~ ") ("removed" " - ") ("added" " + ") (_ "   "))
                       (dwell-diff-instructions--side after (plist-get row :samplesAfter) widths)))
         (line (propertize text 'face (pcase kind ("edited" 'diff-changed) ("removed" 'diff-removed)
                                             ("added" 'diff-added) (_ 'default)))))
    (propertize (concat line "  "
                        (if (dwell--significant-p row)
                            (propertize (plist-get row :label) 'face (dwell--change-face row))
                          ""))
                'dwell-row row)))

(defun dwell-diff-instructions--side (place samples widths)
  "Return PLACE, a `DiffPlace' or nil, with its SAMPLES.
WIDTHS are those of address and text, a cons."
  (pcase-let ((`(,address . ,text) widths))
    (if place
        (concat (string-pad (dwell-diff-instructions--address place) address)
                (string-pad (truncate-string-to-width (plist-get place :text) text nil nil "…") text)
                (string-pad (if (< samples 0.5) "" (number-to-string (round samples))) 8 nil t))
      (make-string (+ address text 8) ?\s))))

;;;; Commands

(defun dwell-diff-instructions-next (&optional count)
  "Move to the COUNTth next instruction that changed for sure."
  (interactive "p" dwell-diff-instructions-mode)
  (let* ((count (or count 1)) (step (if (< count 0) -1 1)))
    (goto-char
     (save-excursion
       (dotimes (_ (abs count))
         (while (progn (unless (and (zerop (forward-line step)) (not (eobp)))
                         (user-error "Dwell: no more changes"))
                       (not (dwell--significant-p (get-text-property (point) 'dwell-row))))))
       (point)))))

(defun dwell-diff-instructions-previous (&optional count)
  "Move to the COUNTth previous instruction that changed for sure."
  (interactive "p" dwell-diff-instructions-mode)
  (dwell-diff-instructions-next (- (or count 1))))

(defun dwell-diff-instructions-visit ()
  "Visit the source of the instruction at point in another window."
  (interactive nil dwell-diff-instructions-mode)
  (let* ((row (or (get-text-property (point) 'dwell-row) (user-error "Dwell: no instruction here")))
         (place (or (plist-get row :after) (plist-get row :before))))
    (unless (and (plist-get place :uri) (plist-get place :line))
      (user-error "Dwell: no source is known for this instruction"))
    (dwell--visit (plist-get place :uri) (plist-get place :line) t)))

(provide 'dwell-diff-listing)
;;; dwell-diff-listing.el ends here
