;;; dwell-hot.el --- Where the time goes, as a list  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/hotProcedures'.  Out: a tabulated list of procedures, images, lines or
;; applications, which follows the profile and keeps point, order and filter.

;;; Code:

(require 'dwell-table)

(defcustom dwell-hot-limit 500
  "How many rows the hot list has at most."
  :type 'natnum
  :group 'dwell)

(defvar-local dwell-hot--by "procedure"
  "What the rows are by: procedure, image, line or app.")

(defvar dwell-hot-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map dwell-table-mode-map)
    (define-key map (kbd "RET") #'dwell-hot-visit)
    (define-key map "o" #'dwell-hot-visit-other-window)
    (define-key map [mouse-2] #'dwell-hot-visit)
    (define-key map "l" #'dwell-hot-listing)
    (define-key map "s" #'dwell-hot-summary)
    (define-key map "c" #'dwell-hot-graph)
    (define-key map "b" #'dwell-hot-by)
    (define-key map "P" #'dwell-hot-by-procedure)
    (define-key map "I" #'dwell-hot-by-image)
    (define-key map "L" #'dwell-hot-by-line)
    (define-key map "A" #'dwell-hot-by-app)
    (define-key map "e" #'dwell-select-epoch)
    (define-key map "E" #'dwell-epochs)
    (define-key map "=" #'dwell-diff)
    map)
  "Keymap of `dwell-hot-mode'.")

(declare-function dwell-select-epoch "dwell-epoch" (epochs))
(declare-function dwell-epochs "dwell-epoch-list" ())
(declare-function dwell-diff "dwell-diff" (&optional before after))
(declare-function dwell-listing "dwell-listing" (procedure &optional place))
(declare-function dwell-graph "dwell-graph" (procedure))
(declare-function dwell-summary "dwell-summary" (&optional procedure image))

(define-derived-mode dwell-hot-mode dwell-table-mode "Dwell-Hot"
  "Where the time goes, most costly first.

\\{dwell-hot-mode-map}"
  :interactive nil
  (setq dwell--revisit-function #'dwell-hot--fetch
        dwell-table--entry-function #'dwell-hot--entry
        dwell-table--empty-function
        (lambda ()
          "No samples in what is shown: \\[dwell-epochs] lists the epochs, \\[dwell-record] records one.")))

;;;###autoload
(defun dwell-hot-procedures ()
  "List the procedures that take the most time."
  (interactive)
  (let ((buffer (dwell--view-buffer "hot" 'dwell-hot-mode)))
    (with-current-buffer buffer (dwell-hot--fetch))
    (pop-to-buffer buffer)))

(defun dwell-hot--fetch ()
  "Ask for this list's rows and show them."
  (let ((by dwell-hot--by))
    (dwell--request (dwell--ensure) :dwell/hotProcedures (list :by by :limit dwell-hot-limit)
                    (lambda (result)
                      (when (equal by dwell-hot--by) (dwell-hot--show result))))))

(defun dwell-hot--show (result)
  "Show RESULT; keep the row at point, the order and the place in each window."
  (let ((width (if (get-buffer-window) (window-width (get-buffer-window)) 100))
        (omitted (or (plist-get result :omittedRows) 0)))
    (dwell-table--show (plist-get result :rows) (dwell-hot--format width)
                       (append (and (> omitted 0)
                                    (list (format "%d more rows (`dwell-hot-limit')" omitted)))
                               (plist-get result :notes) nil)))
  (dwell-table--say (format "by %s: %s" dwell-hot--by
                            (string-join (append (plist-get result :epochs) nil) " + "))))

(defun dwell-hot--format (width)
  "Return the columns of a list that is WIDTH wide."
  (let ((image (equal dwell-hot--by "procedure")))
    (vconcat
     `[("Share" 12 ,(dwell-table--order :share) :right-align t)
       ("Cumul." 7 ,(dwell-table--order :cumulativeShare) :right-align t)
       ("Cycles" 7 ,(dwell-table--order :cycles) :right-align t)
       ("CPI" 6 ,(dwell-table--order :cpi) :right-align t)
       ("Samples" 8 ,(dwell-table--order #'dwell-hot--samples) :right-align t)
       (,(capitalize dwell-hot--by) ,(max 20 (- width 48 (if image 24 0))) t)]
     (and image '(("Image" 24 t))))))

(defun dwell-hot--samples (row)
  "Return how many samples ROW has of the event with the most."
  (cl-loop for (_ count) on (plist-get row :samples) by #'cddr maximize count))

(defun dwell-hot--entry (row)
  "Return the list's columns for ROW."
  (let ((share (plist-get row :share)) (cycles (plist-get row :cycles)) (cpi (plist-get row :cpi)))
    (vconcat
     (list (concat (dwell--bar share) " " (string-pad (dwell--format-share share) 6 nil t))
           (dwell--format-share (plist-get row :cumulativeShare))
           (if cycles (dwell--format-count cycles) "-")
           (if cpi (dwell--format-ratio cpi) "-")
           (number-to-string (or (dwell-hot--samples row) 0))
           (plist-get row :label))
     (and (equal dwell-hot--by "procedure")
          (list (propertize (file-name-nondirectory (or (plist-get row :image) ""))
                            'help-echo (plist-get row :image)))))))

;;;; Commands

(defun dwell-hot-visit (&optional other-window)
  "Visit the source of the row at point, else its listing.
With OTHER-WINDOW show it in another window."
  (interactive)
  (when (mouse-event-p last-input-event) (mouse-set-point last-input-event))
  (let* ((row (dwell-table--row))
         (location (plist-get row :location))
         (file (and location (dwell--file (plist-get location :uri)))))
    (cond ((and file (file-readable-p file))
           (dwell--visit (plist-get location :uri) (plist-get location :line) other-window))
          ((equal dwell-hot--by "procedure") (dwell-listing (plist-get row :id)))
          (file (user-error "Dwell: the source is not here: %s" file))
          (t (user-error "Dwell: %s has no source; `P' lists procedures" (plist-get row :label))))))

(defun dwell-hot-visit-other-window ()
  "Visit the source of the row at point in another window."
  (interactive)
  (dwell-hot-visit t))

(defun dwell-hot-listing ()
  "Show the listing of the procedure at point."
  (interactive)
  (unless (equal dwell-hot--by "procedure")
    (user-error "Dwell: only procedures have a listing; `P' lists them"))
  (dwell-listing (plist-get (dwell-table--row) :id)))

(defun dwell-hot-graph ()
  "Show the control-flow graph of the procedure at point."
  (interactive)
  (unless (equal dwell-hot--by "procedure")
    (user-error "Dwell: only procedures have a graph; `P' lists them"))
  (dwell-graph (plist-get (dwell-table--row) :id)))

(defun dwell-hot-summary ()
  "Show where the cycles of the procedure or image at point go."
  (interactive)
  (let ((row (dwell-table--row)))
    (pcase dwell-hot--by
      ("procedure" (dwell-summary (plist-get row :id)))
      ("image" (dwell-summary nil (plist-get row :id)))
      (_ (user-error "Dwell: only procedures and images have a summary; `P' and `I' list them")))))

(defun dwell-hot-by (by)
  "List where the time goes BY procedure, image, line or app."
  (interactive (list (completing-read "By: " '("procedure" "image" "line" "app") nil t))
               dwell-hot-mode)
  (setq dwell-hot--by by tabulated-list-sort-key nil dwell-table--filter nil)
  (dwell-hot--fetch))

(defun dwell-hot-by-procedure () "List by procedure." (interactive) (dwell-hot-by "procedure"))
(defun dwell-hot-by-image () "List by image." (interactive) (dwell-hot-by "image"))
(defun dwell-hot-by-line () "List by source line." (interactive) (dwell-hot-by "line"))
(defun dwell-hot-by-app () "List by application." (interactive) (dwell-hot-by "app"))

(provide 'dwell-hot)
;;; dwell-hot.el ends here
