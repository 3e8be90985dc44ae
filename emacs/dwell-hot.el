;;; dwell-hot.el --- Where the time goes, as a list  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/hotProcedures'.  Out: a tabulated list of procedures, images, lines or
;; applications, which follows the profile and keeps point, order and filter.

;;; Code:

(require 'dwell-epoch)
(require 'dwell-table)
(require 'dwell-view)

(defcustom dwell-hot-limit 1000
  "How many rows the hot list has at most."
  :type 'natnum
  :group 'dwell)

(defconst dwell-hot--page 50
  "How many rows are asked about in detail at once.")

(defvar-local dwell-hot--details nil
  "What was asked in detail, a hash table: by page t, by id its row.")

(defvar-local dwell-hot--places nil
  "Place of each row in the server's order, by id, a hash table.")

(defvar-local dwell-hot--arrangement '(nil)
  "Sort key and filter that details were asked for.")

(defvar-local dwell-hot--timer nil
  "Timer that will ask for details of the rows in sight.")

(defvar-local dwell-hot--by "procedure"
  "What the rows shown are by: function, image, line or app.")

(defvar-local dwell-hot--wanted "procedure"
  "What they shall be by: the same once the answer has come.")

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
    (define-key map "E" 'dwell-epochs)
    (define-key map "=" 'dwell-diff)
    map)
  "Keymap of `dwell-hot-mode'.")


(define-derived-mode dwell-hot-mode dwell-table-mode "Dwell-Hot"
  "Where the time goes, most costly first.

\\{dwell-hot-mode-map}"
  :interactive nil
  (setq dwell--revisit-function #'dwell-hot--fetch
        dwell-table--entry-function #'dwell-hot--entry
        dwell-table--row-function #'dwell-hot--detailed
        dwell-table--empty-function
        (lambda ()
          "No samples in what is shown: \\[dwell-epochs] lists the recordings, \\[dwell-record] records one."))
  (add-hook 'window-scroll-functions #'dwell-hot--scrolled nil t)
  (add-hook 'post-command-hook #'dwell-hot--arranged nil t))

;;;###autoload
(defun dwell-hot-procedures ()
  "List the functions that take the most time."
  (interactive)
  (let ((buffer (dwell--view-buffer "hot" 'dwell-hot-mode)))
    (with-current-buffer buffer (dwell-hot--fetch))
    (pop-to-buffer buffer)))

(defun dwell-hot--fetch ()
  "Ask for this list's rows and show them.
Of functions only what is cheap, then in detail those in sight."
  (let* ((by dwell-hot--wanted) (bare (equal by "procedure")))
    (dwell--request (dwell--ensure) :dwell/hotProcedures
                    (list :by by :limit dwell-hot-limit :bare (if bare t :json-false))
                    (lambda (result)
                      (when (equal by dwell-hot--wanted)
                        (unless (equal by dwell-hot--by)
                          (setq dwell-hot--by by dwell-hot--details nil
                                tabulated-list-sort-key nil dwell-table--filter nil))
                        (dwell-hot--show result)
                        (when bare (dwell-hot--look-closer)))))))

(defun dwell-hot--show (result)
  "Show RESULT; keep the row at point, the order and the place in each window."
  (let ((width (if (get-buffer-window) (window-width (get-buffer-window)) 100))
        (omitted (or (plist-get result :omittedRows) 0))
        (rows (plist-get result :rows))
        (known dwell-hot--details))
    (setq dwell-hot--details (make-hash-table :test #'equal)
          dwell-hot--places (make-hash-table :test #'equal))
    (cl-loop for row across rows for place from 0
             do (puthash (plist-get row :id) place dwell-hot--places)
             ;; Till the new details come, those of the same samples hold; others would be wrong.
             do (when-let ((old (and known (gethash (plist-get row :id) known))))
                  (when (equal (plist-get old :samples) (plist-get row :samples))
                    (puthash (plist-get row :id) old dwell-hot--details))))
    (dwell-table--show rows (dwell-hot--format width)
                       (append (and (> omitted 0)
                                    (list (format "%d more rows (`dwell-hot-limit')" omitted)))
                               (plist-get result :notes) nil)))
  (dwell-table--say (format "by %s: %s" (dwell-table--what dwell-hot--by)
                            (dwell--epochs-in-words (plist-get result :epochs)))))

;;;; Details of what is in sight

(defun dwell-hot--detailed (row)
  "Return ROW with what was asked of it in detail, if it was."
  (or (and dwell-hot--details (gethash (plist-get row :id) dwell-hot--details)) row))

(defun dwell-hot--scrolled (window _start)
  "Ask soon for the details of what WINDOW shows now."
  (with-current-buffer (window-buffer window) (dwell-hot--look-soon)))

(defun dwell-hot--arranged ()
  "Ask soon for details if the rows were sorted or filtered again."
  (let ((arrangement (cons tabulated-list-sort-key dwell-table--filter)))
    (unless (equal arrangement dwell-hot--arrangement)
      (setq dwell-hot--arrangement arrangement)
      (dwell-hot--look-soon))))

(defun dwell-hot--look-soon ()
  "Ask for the details of the rows in sight once Emacs is idle."
  (unless dwell-hot--timer
    (let ((buffer (current-buffer)))
      (setq dwell-hot--timer
            (dwell--soon 0.1 (lambda ()
                               (when (buffer-live-p buffer)
                                 (with-current-buffer buffer
                                   (setq dwell-hot--timer nil)
                                   (dwell-hot--look-closer)))))))))

(defun dwell-hot--look-closer ()
  "Ask for the details of the rows that windows show.
Ask for those of all rows while a column of the details sorts them."
  (when (and dwell-hot--details (equal dwell-hot--by "procedure"))
    (dolist (page (if (member (car tabulated-list-sort-key) '("CPI" "Ex/St/Dyn"))
                      (number-sequence 0 (/ (1- (max 1 (length dwell-table--rows))) dwell-hot--page))
                    (dwell-hot--pages-in-sight)))
      (unless (gethash page dwell-hot--details)
        (puthash page t dwell-hot--details)
        (dwell-hot--fetch-page page)))))

(defun dwell-hot--pages-in-sight ()
  "Return the pages, in the server's order, that have a row in a window."
  (let (pages)
    (dolist (window (get-buffer-window-list nil nil t))
      (save-excursion
        (goto-char (window-start window))
        (cl-loop repeat (window-body-height window)
                 for place = (gethash (tabulated-list-get-id) dwell-hot--places)
                 when place do (cl-pushnew (/ place dwell-hot--page) pages)
                 while (zerop (forward-line 1)))))
    (sort pages #'<)))

(defun dwell-hot--fetch-page (page)
  "Ask for the details of PAGE and show them in place."
  (let ((details dwell-hot--details))
    (dwell--request (dwell--ensure) :dwell/hotProcedures
                    (list :by "procedure" :offset (* page dwell-hot--page) :limit dwell-hot--page :split t)
                    (lambda (result)
                      (when (eq details dwell-hot--details)
                        (seq-doseq (row (plist-get result :rows))
                          (puthash (plist-get row :id) row details))
                        (dwell-table--print)))
                    (lambda (_) (remhash page details)))))

(defun dwell-hot--row ()
  "Return the row at point in detail; ask for it if need be."
  (let* ((row (dwell-table--row)) (place (gethash (plist-get row :id) dwell-hot--places)))
    (cond ((not (equal dwell-hot--by "procedure")) row)
          ((gethash (plist-get row :id) dwell-hot--details))
          (t (or (seq-find (lambda (found) (equal (plist-get found :id) (plist-get row :id)))
                           (plist-get (dwell--await (dwell--ensure) :dwell/hotProcedures
                                                    (list :by "procedure" :offset place :limit 1))
                                      :rows))
                 row)))))

(defun dwell-hot--format (width)
  "Return the columns of a list that is WIDTH wide."
  (let ((image (equal dwell-hot--by "procedure")))
    (vconcat
     `[("Share" 12 ,(dwell-table--order :share) :right-align t)
       ("Cumul." 7 ,(dwell-table--order :cumulativeShare) :right-align t)
       ("Cycles" 7 ,(dwell-table--order :cycles) :right-align t)
       ("CPI" 6 ,(dwell-table--order #'dwell-hot--cpi) :right-align t)
       ("Samples" 8 ,(dwell-table--order #'dwell-hot--samples) :right-align t)
       (,(capitalize dwell-hot--by) ,(max 20 (- width 48 (if image 34 0))) t)]
     (and image `(("Ex/St/Dyn" 12 ,(dwell-table--order #'dwell-hot--dynamic)) ("Image" 20 t))))))

(defun dwell-hot--cpi (row)
  "Return the cycles per instruction of ROW, or the least that they can be, or nil."
  (or (plist-get row :cpi) (plist-get row :cpiMin)))

(defun dwell-hot--format-cpi (row)
  "Return the cycles per instruction of ROW, a bound where they are not known."
  (let ((cpi (plist-get row :cpi)) (least (plist-get row :cpiMin)))
    (cond (cpi (dwell--format-ratio cpi))
          ((and least (>= least 0.995)) ; less than a cycle says nothing
           (propertize (concat "≥" (dwell--format-ratio least))
                       'help-echo "At least: how often the code ran is not known as a number"))
          (t "-"))))

(defun dwell-hot--dynamic (row)
  "Return the part of the cycles of ROW that are dynamic stalls, or nil."
  (plist-get (plist-get row :split) :dynamic))

(defun dwell-hot--split (split)
  "Return SPLIT, a `CycleSplit' or nil, in percent.
Parts whose sum is far from the whole come from too few samples."
  (if (or (null split)
          (> (abs (- 1 (cl-loop for (_ part) on split by #'cddr sum part))) 0.5))
      "-"
    (propertize (mapconcat (lambda (key) (format "%.0f" (* 100 (plist-get split key)))) '(:execution :static :dynamic) "/")
                'help-echo "Cycles in %: execution, static stalls, dynamic stalls")))

(defun dwell-hot--samples (row)
  "Return how many samples ROW has of the event with the most."
  (cl-loop for (_ count) on (plist-get row :samples) by #'cddr maximize count))

(defun dwell-hot--entry (row)
  "Return the list's columns for ROW."
  (let ((share (plist-get row :share)) (cycles (plist-get row :cycles)))
    (vconcat
     (list (concat (dwell--bar share) " " (string-pad (dwell--format-share share) 6 nil t))
           (dwell--format-share (plist-get row :cumulativeShare))
           (if cycles (dwell--format-count cycles) "-")
           (dwell-hot--format-cpi row)
           (number-to-string (or (dwell-hot--samples row) 0))
           (plist-get row :label))
     (and (equal dwell-hot--by "procedure")
          (list (dwell-hot--split (plist-get row :split))
                (propertize (file-name-nondirectory (or (plist-get row :image) ""))
                            'help-echo (plist-get row :image)))))))

;;;; Commands

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
          ((equal dwell-hot--by "procedure") (dwell--show 'listing (plist-get row :id)))
          (file (user-error "Dwell: the source is not here: %s" file))
          (t (user-error "Dwell: %s has no source; `P' lists functions" (plist-get row :label))))))

(defun dwell-hot-visit-other-window ()
  "Visit the source of the row at point in another window."
  (interactive)
  (dwell-hot-visit t))

(defun dwell-hot-listing ()
  "Show the listing of the function at point."
  (interactive)
  (unless (equal dwell-hot--by "procedure")
    (user-error "Dwell: only functions have a listing; `P' lists them"))
  (dwell--show 'listing (plist-get (dwell-table--row) :id)))

(defun dwell-hot-graph ()
  "Show the control-flow graph of the function at point."
  (interactive)
  (unless (equal dwell-hot--by "procedure")
    (user-error "Dwell: only functions have a graph; `P' lists them"))
  (dwell--show 'graph (plist-get (dwell-table--row) :id)))

(defun dwell-hot-summary ()
  "Show where the cycles of the function or image at point go."
  (interactive)
  (let ((row (dwell-table--row)))
    (pcase dwell-hot--by
      ("procedure" (dwell--show 'summary (plist-get row :id)))
      ("image" (dwell--show 'summary nil (plist-get row :id)))
      (_ (user-error "Dwell: only functions and images have a summary; `P' and `I' list them")))))

(defun dwell-hot-by (by)
  "List where the time goes BY function, image, line or app."
  (interactive (list (completing-read "By: " '("procedure" "image" "line" "app") nil t))
               dwell-hot-mode)
  (setq dwell-hot--wanted by)
  (dwell-hot--fetch))

(defun dwell-hot-by-procedure () "List by function." (interactive) (dwell-hot-by "procedure"))
(defun dwell-hot-by-image () "List by image." (interactive) (dwell-hot-by "image"))
(defun dwell-hot-by-line () "List by source line." (interactive) (dwell-hot-by "line"))
(defun dwell-hot-by-app () "List by application." (interactive) (dwell-hot-by "app"))

(provide 'dwell-hot)
;;; dwell-hot.el ends here
