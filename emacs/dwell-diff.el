;;; dwell-diff.el --- What changed between two runs  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/diff'.  Out: a list of procedures or lines with their change, called after
;; what changed more, how often they ran or how long they took each time; what may be chance is grey.
;; RET on a procedure shows its instructions, both builds side by side.

;;; Code:

(require 'dwell-table)
(require 'dwell-epoch)
(require 'dwell-view)

(defcustom dwell-diff-limit 500
  "How many rows a list of changes has at most."
  :type 'natnum
  :group 'dwell)

(defvar-local dwell-diff--epochs nil
  "Parameters that say what is compared: before and after, if they were named.")

(defvar-local dwell-diff--by "procedure"
  "What the rows are by: function or line.")

(defvar-local dwell-diff--all nil
  "Whether changes that may be chance are listed too.")

(defvar-local dwell-diff--result nil
  "The server's answer that is shown.")

(defvar dwell-diff-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map dwell-table-mode-map)
    (pcase-dolist (`(,key . ,command)
                   '(("RET" . dwell-diff-visit) ("o" . dwell-diff-visit-other-window)
                     ("P" . dwell-diff-by-procedure) ("L" . dwell-diff-by-line) ("a" . dwell-diff-toggle-all)
                     ("l" . dwell-diff-listing) ("d" . dwell-diff-describe) ("E" . dwell-epochs)))
      (define-key map (kbd key) command))
    (define-key map [mouse-2] #'dwell-diff-visit)
    map)
  "Keymap of `dwell-diff-mode'.")


(define-derived-mode dwell-diff-mode dwell-table-mode "Dwell-Diff"
  "What changed between two runs, the largest change first.

\\{dwell-diff-mode-map}"
  :interactive nil
  (setq dwell--revisit-function #'dwell-diff--fetch
        dwell-table--id-function #'dwell-diff--id
        dwell-table--empty-function #'dwell-diff--empty
        dwell-table--entry-function #'dwell-diff--entry))

;;;###autoload
(defun dwell-diff (&optional before after)
  "List what changed from the recordings BEFORE to those AFTER, both lists.
Interactively from those that `dwell-compare' pinned to those shown;
without such, or with a prefix argument, ask for those before."
  (interactive
   (unless (and (dwell--baseline (dwell--ensure)) (not current-prefix-arg))
     (list (dwell--read-epochs "What changed since the recordings" (dwell--await-epochs)))))
  (let ((buffer (dwell--view-buffer "diff" 'dwell-diff-mode)))
    (with-current-buffer buffer
      (setq dwell-diff--epochs `( ,@(and before (list :before (vconcat before)))
                                  ,@(and after (list :after (vconcat after)))))
      (dwell-diff--fetch))
    (pop-to-buffer buffer)))

(defun dwell-diff--fetch ()
  "Ask what changed and show it."
  (let ((epochs dwell-diff--epochs) (all dwell-diff--all))
    (dwell--request (dwell--ensure) :dwell/diff
                    (append epochs (list :all (if all t :json-false) :limit dwell-diff-limit))
                    (lambda (result)
                      (when (and (eq epochs dwell-diff--epochs) (eq all dwell-diff--all))
                        (dwell-diff--show result)))
                    (lambda (problem)
                      ;; When the comparison ends, what was compared stays to be read.
                      (unless (or (dwell--passing-p problem) (and dwell-diff--result (null epochs)))
                        (message "Dwell: %s" (plist-get problem :message)))))))

(defun dwell-diff--show (result)
  "Show RESULT, a `DiffResult'."
  (setq dwell-diff--result result)
  (let* ((by-procedure (equal dwell-diff--by "procedure"))
         (width (if (get-buffer-window) (window-width (get-buffer-window)) 120))
         (hidden (plist-get result (if by-procedure :insignificantProcedures :insignificantLines))))
    (dwell-table--show
     (plist-get result (if by-procedure :procedures :lines))
     (dwell-diff--format width)
     (append (and (> hidden 0)
                  (list (format "%d more %s changed within chance%s" hidden (if by-procedure "functions" "lines")
                                (if dwell-diff--all "" " (`a' lists them)"))))
             (and (> (plist-get result :omittedRows) 0)
                  (list (format "%d more rows (`dwell-diff-limit')" (plist-get result :omittedRows))))
             (plist-get result :notes) nil)))
  (dwell-table--say (dwell-diff--title result)))

(defun dwell-diff--empty ()
  "Say that nothing changed; the notes say how much did within chance."
  (cl-flet ((side (key) (dwell--epochs-in-words (plist-get (plist-get dwell-diff--result key) :epochs))))
    (format "No %s changed%s from %s to %s." (dwell-table--what dwell-diff--by) (if dwell-diff--all "" " beyond what may be chance")
            (side :before) (side :after))))

(defun dwell-diff--title (result)
  "Return what RESULT compares and what came of it."
  (cl-flet ((side (key) (dwell--epochs-in-words (plist-get (plist-get result key) :epochs))))
    (format "%s → %s: %s in all, by %s" (side :before) (side :after)
            (dwell-diff--signed (plist-get (plist-get result :total) :changeShare))
            (plist-get result :normalizedBy))))

(defun dwell-diff--format (width)
  "Return the columns of a list that is WIDTH wide."
  (let ((procedure (equal dwell-diff--by "procedure")))
    (vconcat
     `[("Change" 8 ,(dwell-table--order :changeShare) :right-align t)
       ("Verdict" 15 t)
       ("Cycles" 9 ,(dwell-table--order :changeCycles) :right-align t)
       ("Runs" 7 ,(dwell-table--order :countRatio) :right-align t)
       ("CPI" 13 ,(dwell-table--order :costRatio) :right-align t)
       ("Samples" 15 ,(dwell-table--order :samplesAfter) :right-align t)
       (,(capitalize dwell-diff--by) ,(max 20 (- width 76 (if procedure 20 0))) t)]
     (and procedure '(("Image" 20 t))))))

(defun dwell-diff--id (row)
  "Return the id of ROW, a function or a line."
  (or (plist-get row :id)
      (format "%s:%s:%s" (plist-get row :file) (plist-get row :lineBefore) (plist-get row :lineAfter))))

(defun dwell-diff--entry (row)
  "Return the list's columns for ROW."
  (let* ((face (dwell--change-face row))
         (columns (list (dwell-diff--signed (plist-get row :changeShare))
                        (dwell-diff--verdict row)
                        (if-let ((cycles (plist-get row :changeCycles)))
                            (dwell-diff--sign cycles (dwell--format-count (abs cycles)))
                          "-")
                        (if-let ((ratio (plist-get row :countRatio)))
                            (concat "×" (dwell--format-ratio ratio))
                          "-")
                        (dwell-diff--pair (plist-get row :cpiBefore) (plist-get row :cpiAfter) #'dwell--format-ratio)
                        (dwell-diff--pair (plist-get row :samplesBefore) (plist-get row :samplesAfter)
                                          (lambda (samples) (number-to-string (round samples))))
                        (or (plist-get row :name) (dwell-diff--line-name row)))))
    (vconcat (mapcar (lambda (column) (propertize column 'face face 'help-echo (plist-get row :details))) columns)
             (and (equal dwell-diff--by "procedure")
                  (list (propertize (plist-get row :image) 'face (if (eq face 'dwell-noise) face 'default)))))))

(defun dwell-diff--verdict (row)
  "Return what became of ROW.
A question mark says that count and cost are told apart by a guess."
  (let ((verdict (plist-get row :verdict)))
    (concat (string-replace "-" " " verdict)
            (and (member verdict '("slower" "faster" "more-often" "less-often"))
                 (not (member (plist-get row :confidence) '("medium" "high")))
                 "?"))))

(defun dwell-diff--line-name (row)
  "Return what the line of ROW is called."
  (let ((line (or (plist-get row :lineAfter) (plist-get row :lineBefore))))
    (concat (file-name-nondirectory (plist-get row :file)) (if line (format ":%d" (1+ line)) ""))))

(defun dwell-diff--signed (share)
  "Return SHARE in percent, with its sign."
  (dwell-diff--sign share (dwell--format-share (abs share))))

(defun dwell-diff--sign (value text)
  "Return TEXT, that of VALUE without its sign, with the sign."
  (concat (if (< value 0) "−" "+") text))

(defun dwell-diff--pair (before after format)
  "Return BEFORE and AFTER, either of which may be nil, each by FORMAT."
  (if (or before after)
      (format "%s→%s" (if before (funcall format before) "-") (if after (funcall format after) "-"))
    "-"))

;;;; Commands

(defun dwell-diff-by-procedure ()
  "List changes by function."
  (interactive nil dwell-diff-mode)
  (dwell-diff--list-by "procedure"))

(defun dwell-diff-by-line ()
  "List changes by source line."
  (interactive nil dwell-diff-mode)
  (dwell-diff--list-by "line"))

(defun dwell-diff--list-by (by)
  "List changes BY function or line."
  (setq dwell-diff--by by tabulated-list-sort-key nil dwell-table--filter nil)
  (when dwell-diff--result (dwell-diff--show dwell-diff--result)))

(defun dwell-diff-toggle-all ()
  "List what may be chance too, greyed, or list it no more."
  (interactive nil dwell-diff-mode)
  (setq dwell-diff--all (not dwell-diff--all))
  (dwell-diff--fetch))

(defun dwell-diff-visit (&optional other-window)
  "Visit the line at point, or compare the instructions of the function.
With OTHER-WINDOW show the line in another window."
  (interactive nil dwell-diff-mode)
  (when (mouse-event-p last-input-event) (mouse-set-point last-input-event))
  (let* ((row (dwell-table--row)) (uri (plist-get row :uri)) (line (plist-get row :lineAfter)))
    (cond ((plist-get row :id) (dwell--show 'diff-instructions (plist-get row :id) dwell-diff--epochs))
          ((and uri line) (dwell--visit uri line other-window))
          (uri (user-error "Dwell: this line is there no more"))
          (t (user-error "Dwell: it is not known where %s is" (plist-get row :file))))))

(defun dwell-diff-visit-other-window ()
  "Visit the line at point in another window."
  (interactive nil dwell-diff-mode)
  (dwell-diff-visit t))

(defun dwell-diff-listing ()
  "Show the listing of the function at point as it is after the change."
  (interactive nil dwell-diff-mode)
  (dwell--show 'listing (or (plist-get (dwell-table--row) :id)
                     (user-error "Dwell: only functions have a listing; `P' lists them"))))

(defun dwell-diff-describe ()
  "Say all that is known of the change at point."
  (interactive nil dwell-diff-mode)
  (message "%s" (plist-get (dwell-table--row) :details)))

(provide 'dwell-diff)
;;; dwell-diff.el ends here
