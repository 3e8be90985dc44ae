;;; dwell-hot.el --- Where the time goes, as a list  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/hotProcedures'.  Out: a tabulated list of procedures, images, lines or
;; applications, which follows the profile and keeps point, order and filter.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'tabulated-list)

(defcustom dwell-hot-limit 500
  "How many rows the hot list has at most."
  :type 'natnum
  :group 'dwell)

(defvar-local dwell-hot--by "procedure"
  "What the rows are by: procedure, image, line or app.")

(defvar-local dwell-hot--rows nil
  "Rows of the list, by id.")

(defvar-local dwell-hot--result nil
  "The server's answer that is shown.")

(defvar-local dwell-hot--filter nil
  "Regexp that the rows shown match, or nil.")

(defvar dwell-hot-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'dwell-hot-visit)
    (define-key map "o" #'dwell-hot-visit-other-window)
    (define-key map [mouse-2] #'dwell-hot-visit)
    (define-key map "l" #'dwell-hot-listing)
    (define-key map "b" #'dwell-hot-by)
    (define-key map "P" #'dwell-hot-by-procedure)
    (define-key map "I" #'dwell-hot-by-image)
    (define-key map "L" #'dwell-hot-by-line)
    (define-key map "A" #'dwell-hot-by-app)
    (define-key map "/" #'dwell-hot-filter)
    (define-key map "e" #'dwell-select-epoch)
    (define-key map "?" #'dwell-hot-notes)
    map)
  "Keymap of `dwell-hot-mode'.")

(declare-function dwell-select-epoch "dwell-epoch" (epochs))
(declare-function dwell-listing "dwell-listing" (procedure &optional place))

(define-derived-mode dwell-hot-mode tabulated-list-mode "Dwell-Hot"
  "Where the time goes, most costly first.

\\{dwell-hot-mode-map}"
  :interactive nil
  (setq tabulated-list-padding 1
        dwell--revisit-function #'dwell-hot--fetch)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-hot--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;###autoload
(defun dwell-hot-procedures ()
  "List the procedures that take the most time."
  (interactive)
  (let* ((connection (dwell--ensure))
         (key (dwell--key connection))
         (root (if (stringp key) key default-directory))
         (buffer (get-buffer-create
                  (if (stringp key)
                      (format "*Dwell hot: %s*" (file-name-nondirectory (directory-file-name key)))
                    "*Dwell hot*"))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'dwell-hot-mode) (dwell-hot-mode))
      (setq default-directory root dwell--buffer-key key)
      (dwell-hot--fetch))
    (pop-to-buffer buffer)))

(defun dwell-hot--fetch ()
  "Ask for this list's rows and show them."
  (let ((by dwell-hot--by))
    (dwell--request (dwell--ensure) :dwell/hotProcedures (list :by by :limit dwell-hot-limit)
                    (lambda (result)
                      (when (equal by dwell-hot--by) (dwell-hot--show result))))))

(defun dwell-hot--show (result)
  "Show RESULT; keep the row at point, the order and the place in each window."
  (setq dwell-hot--result result
        dwell-hot--rows (make-hash-table :test #'equal))
  (seq-doseq (row (plist-get result :rows))
    (puthash (plist-get row :id) row dwell-hot--rows))
  (let ((width (if (get-buffer-window) (window-width (get-buffer-window)) 100)))
    (setq tabulated-list-format (dwell-hot--format width)))
  (tabulated-list-init-header)
  (dwell-hot--print)
  (setq mode-line-process (format " by %s: %s%s" dwell-hot--by
                                  (string-join (append (plist-get result :epochs) nil) " + ")
                                  (if dwell-hot--filter (format " /%s/" dwell-hot--filter) "")))
  (force-mode-line-update))

(defun dwell-hot--print ()
  "Print the rows that the filter lets through."
  (setq tabulated-list-entries
        (seq-map #'dwell-hot--entry
                 (seq-filter (lambda (row)
                               (or (null dwell-hot--filter)
                                   (string-match-p dwell-hot--filter
                                                   (concat (plist-get row :label) " "
                                                           (plist-get row :image)))))
                             (plist-get dwell-hot--result :rows))))
  (let ((places (mapcar (lambda (window) (cons window (window-start window)))
                        (get-buffer-window-list nil nil t))))
    (tabulated-list-print t)
    (pcase-dolist (`(,window . ,start) places)
      (set-window-start window (min start (point-max)) t))))

(defun dwell-hot--format (width)
  "Return the columns of a list that is WIDTH wide."
  (let ((image (equal dwell-hot--by "procedure")))
    (vconcat
     `[("Share" 12 ,(dwell-hot--order :share) :right-align t)
       ("Cumul." 7 ,(dwell-hot--order :cumulativeShare) :right-align t)
       ("Cycles" 7 ,(dwell-hot--order :cycles) :right-align t)
       ("CPI" 6 ,(dwell-hot--order :cpi) :right-align t)
       ("Samples" 8 ,(dwell-hot--order :samples) :right-align t)
       (,(capitalize dwell-hot--by) ,(max 20 (- width 48 (if image 24 0))) t)]
     (and image '(("Image" 24 t))))))

(defun dwell-hot--order (key)
  "Return a predicate that orders entries by KEY of their rows, no estimate first."
  (lambda (a b)
    (cl-flet ((value (entry)
                (let ((value (plist-get (gethash (car entry) dwell-hot--rows) key)))
                  (cond ((eq key :samples) (dwell-hot--samples value))
                        (value)
                        (t -1)))))
      (< (value a) (value b)))))

(defun dwell-hot--samples (samples)
  "Return how many SAMPLES, a plist by event, there are of the event with the most."
  (cl-loop for (_ count) on samples by #'cddr maximize count))

(defun dwell-hot--entry (row)
  "Return the list's entry for ROW."
  (let ((share (plist-get row :share)) (cycles (plist-get row :cycles)) (cpi (plist-get row :cpi)))
    (list (plist-get row :id)
          (vconcat
           (list (concat (dwell--bar share) " " (string-pad (dwell--format-share share) 6 nil t))
                 (dwell--format-share (plist-get row :cumulativeShare))
                 (if cycles (dwell--format-count cycles) "-")
                 (if cpi (dwell--format-ratio cpi) "-")
                 (number-to-string (or (dwell-hot--samples (plist-get row :samples)) 0))
                 (plist-get row :label))
           (and (equal dwell-hot--by "procedure")
                (list (propertize (file-name-nondirectory (or (plist-get row :image) ""))
                                  'help-echo (plist-get row :image))))))))

;;;; Commands

(defun dwell-hot--row ()
  "Return the row at point."
  (or (gethash (tabulated-list-get-id) dwell-hot--rows)
      (user-error "Dwell: no row here")))

(defun dwell-hot-visit (&optional other-window)
  "Visit the source of the row at point, else its listing.
With OTHER-WINDOW show it in another window."
  (interactive)
  (when (mouse-event-p last-input-event) (mouse-set-point last-input-event))
  (let* ((row (dwell-hot--row))
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
  (dwell-listing (plist-get (dwell-hot--row) :id)))

(defun dwell-hot-by (by)
  "List where the time goes BY procedure, image, line or app."
  (interactive (list (completing-read "By: " '("procedure" "image" "line" "app") nil t))
               dwell-hot-mode)
  (setq dwell-hot--by by tabulated-list-sort-key nil dwell-hot--filter nil)
  (dwell-hot--fetch))

(defun dwell-hot-by-procedure () "List by procedure." (interactive) (dwell-hot-by "procedure"))
(defun dwell-hot-by-image () "List by image." (interactive) (dwell-hot-by "image"))
(defun dwell-hot-by-line () "List by source line." (interactive) (dwell-hot-by "line"))
(defun dwell-hot-by-app () "List by application." (interactive) (dwell-hot-by "app"))

(defun dwell-hot-filter (regexp)
  "Show only the rows that match REGEXP; all if it is empty."
  (interactive (list (read-regexp "Show rows that match (empty for all): ")) dwell-hot-mode)
  (setq dwell-hot--filter (if (string-empty-p regexp) nil regexp))
  (dwell-hot--show dwell-hot--result))

(defun dwell-hot-notes ()
  "Say what one must know to read the list."
  (interactive)
  (let ((notes (append (plist-get dwell-hot--result :notes) nil))
        (omitted (or (plist-get dwell-hot--result :omittedRows) 0)))
    (when (> omitted 0)
      (push (format "%d more rows (`dwell-hot-limit')" omitted) notes))
    (message "%s" (if notes (string-join notes "\n") "Dwell: nothing to note"))))

(provide 'dwell-hot)
;;; dwell-hot.el ends here
