;;; dwell-callers.el --- Who calls a function, and what it calls  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/callers', a level at a time.  Out: a tree whose rows unfold.  All shares
;; are parts of the samples of the function at the top; each row leads to the line of its call.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'dwell-sync)
(require 'dwell-table)

(defface dwell-callers-place '((t :inherit shadow))
  "Face for the line of a call and the binary of a function."
  :group 'dwell)

(defvar-local dwell-callers--of nil
  "The function at the top, as the server takes it: a plist of parameters.")

(defvar-local dwell-callers--callees nil
  "Non-nil if the tree shows what the function calls.")

(defvar-local dwell-callers--open nil
  "The ways to the rows that are unfolded, a list of vectors of calls.")

(defvar dwell-callers-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map (kbd "TAB") #'dwell-callers-toggle)
    (define-key map (kbd "RET") #'dwell-callers-visit)
    (define-key map [mouse-2] #'dwell-callers-visit)
    (define-key map "o" #'dwell-callers-visit-other-window)
    (define-key map "n" #'dwell-callers-next)
    (define-key map "p" #'dwell-callers-previous)
    (define-key map "^" #'dwell-callers-up)
    (define-key map "t" #'dwell-callers-turn)
    (define-key map "e" 'dwell-select-epoch)
    map)
  "Keymap of `dwell-callers-mode'.")

(define-derived-mode dwell-callers-mode special-mode "Dwell-Callers"
  "Who calls a function or what it calls, by the call stacks of its samples.

\\{dwell-callers-mode-map}"
  :interactive nil
  (setq truncate-lines t
        dwell--revisit-function #'dwell-callers--fetch)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-callers--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;###autoload
(defun dwell-callers (&optional function)
  "Show who calls FUNCTION, `NAME' or `BINARY:NAME'.
Interactively the one at point, else one to name."
  (interactive)
  (dwell-callers--of function nil))

;;;###autoload
(defun dwell-callees (&optional function)
  "Show what FUNCTION calls, `NAME' or `BINARY:NAME'.
Interactively the one at point, else one to name."
  (interactive)
  (dwell-callers--of function t))

(defun dwell-callers--of (function callees)
  "Show the callers of FUNCTION, or that at point; if CALLEES its callees."
  (let ((of (cond (function (list :function function))
                  (dwell--document
                   (dwell--send-changes)
                   (list :textDocument (list :uri dwell--document) :position (dwell--position (point))))
                  (t (list :function (dwell-callers--read)))))
        (buffer (dwell--view-buffer "callers" 'dwell-callers-mode)))
    (with-current-buffer buffer
      (setq dwell-callers--of of dwell-callers--callees callees dwell-callers--open nil)
      (dwell-callers--fetch (lambda () (pop-to-buffer buffer))))))

(defun dwell-callers--read ()
  "Let the user name a function."
  (let ((name (read-string (format-prompt "Callers of the function" (thing-at-point 'symbol t))
                           nil nil (thing-at-point 'symbol t))))
    (if (or (null name) (string-empty-p name)) (user-error "Dwell: no function was named") name)))

(defun dwell-callers--ask (way then)
  "Ask for the rows after WAY, a vector of calls, and call THEN with the answer."
  (dwell--request (dwell--ensure) :dwell/callers
                  `(,@dwell-callers--of :callees ,(if dwell-callers--callees t :json-false) :through ,way)
                  then
                  (lambda (problem)
                    (when (zerop (buffer-size)) (kill-buffer))
                    (message "Dwell: %s" (plist-get problem :message)))))

(defun dwell-callers--fetch (&optional then)
  "Ask for this buffer's tree, show it, then call THEN."
  (dwell-callers--ask [] (lambda (result)
                           (dwell-callers--show result)
                           (when (functionp then) (funcall then)))))

;;;; Showing

(defun dwell-callers--show (result)
  "Show RESULT, the function and its direct callers or callees."
  (let ((inhibit-read-only t)
        (way (dwell-callers--way)))
    ;; From now on the function is known by name: the cursor moves on.
    (setq dwell-callers--of (list :function (plist-get result :id)))
    (erase-buffer)
    (insert (propertize (plist-get result :function) 'face 'bold 'dwell-root result)
            (propertize (concat "  " (plist-get result :image)) 'face 'dwell-callers-place) "\n"
            (propertize (dwell-callers--basis result) 'face 'dwell-cost) "\n")
    (seq-doseq (note (plist-get result :notes)) (insert (propertize note 'face 'dwell-cost) "\n"))
    (insert "\n")
    (when (seq-empty-p (plist-get result :rows))
      (insert (propertize (if dwell-callers--callees "It calls nothing." "Nothing calls it: its stacks begin here.")
                          'face 'dwell-cost)
              "\n"))
    (dwell-callers--insert (plist-get result :rows) [])
    (goto-char (or (dwell-callers--place way) (dwell-callers--first) (point-min)))
    (set-buffer-modified-p nil)
    (setq header-line-format
          (format " %s   TAB: unfold  RET: the call  ^: up  t: %s  g: ask again"
                  (if dwell-callers--callees "calls" "called from")
                  (if dwell-callers--callees "callers" "callees")))))

(defun dwell-callers--basis (result)
  "Return what the shares of RESULT are parts of, and what is not known."
  (let ((lost (seq-reduce #'+ (seq-map (lambda (row) (plist-get row :samples)) (plist-get result :incomplete)) 0))
        (samples (plist-get result :samples))
        (total (plist-get result :total)))
    (concat (format "Shares of its %d samples, %s of %d with a call stack; %d in itself."
                    samples (dwell--format-share (/ samples (float (max total 1)))) total (plist-get result :own))
            (if (zerop lost) "" (format " The outer frames of %d of all stacks are not known." lost)))))

(defun dwell-callers--insert (rows way)
  "Insert ROWS, which follow WAY, at point; unfold those that were before."
  (let (unfold)
    (seq-doseq (row rows)
      (let ((here (vconcat way (list (dwell-callers--step row)))))
        (when (and (member here dwell-callers--open) (dwell-callers--leads-p row)) (push here unfold))
        (insert (propertize (dwell-callers--text row (length way)) 'dwell-row row 'dwell-way here) "\n")))
    (mapc #'dwell-callers--unfold (nreverse unfold))))

(defun dwell-callers--step (row)
  "Return the call that ROW stands for, as requests have it."
  (list :function (plist-get row :function) :image (plist-get row :image)
        :inlined (if (eq t (plist-get row :inlined)) t :json-false)))

(defun dwell-callers--leads-p (row)
  "Return non-nil if there may be rows behind ROW."
  (eq t (plist-get row :leads)))

(defun dwell-callers--text (row level)
  "Return ROW, at LEVEL from 0, as a line."
  (let* ((sites (plist-get row :sites))
         (site (and (not (seq-empty-p sites)) (seq-elt sites 0)))
         (more (if (> (seq-length sites) 1) (format " +%d" (1- (seq-length sites))) "")))
    (concat (propertize (string-pad (dwell--format-share (plist-get row :share)) 6 nil t)
                        'face (dwell--heat (plist-get row :share)))
            " " (make-string (* 2 level) ?\s) (if (dwell-callers--leads-p row) "+ " "  ")
            (propertize (plist-get row :label) 'help-echo (plist-get row :details) 'mouse-face 'highlight)
            (propertize (concat (if site (format "  %s:%d%s" (file-name-nondirectory (dwell--file (plist-get site :uri)))
                                                 (1+ (plist-get site :line)) more)
                                  "")
                                "  " (plist-get row :image))
                        'face 'dwell-callers-place))))

;;;; Rows

(defun dwell-callers--way ()
  "Return the way to the row at point, or nil."
  (get-text-property (line-beginning-position) 'dwell-way))

(defun dwell-callers--row ()
  "Return the row at point."
  (or (get-text-property (line-beginning-position) 'dwell-row)
      (user-error "Dwell: no call here")))

(defun dwell-callers--first ()
  "Return where the first row begins, or nil."
  (next-single-property-change (point-min) 'dwell-way))

(defun dwell-callers--place (way)
  "Return where the row of WAY begins, or nil."
  (save-excursion
    (goto-char (point-min))
    (cl-loop until (or (null way) (eobp))
             when (equal way (dwell-callers--way)) return (point)
             do (forward-line 1))))

(defun dwell-callers--inside-p (way)
  "Return non-nil if the row at point lies behind WAY."
  (let ((here (dwell-callers--way)))
    (and here (> (length here) (length way)) (equal way (seq-take here (length way))))))

(defun dwell-callers--mark (place mark)
  "Put MARK, a character, before the name of the row at PLACE."
  (let ((inhibit-read-only t))
    (save-excursion
      (goto-char place)
      (goto-char (+ place 7 (* 2 (1- (length (dwell-callers--way))))))
      (let ((properties (text-properties-at (point))))
        (delete-char 1)
        (insert (apply #'propertize (string mark) properties))))
    (set-buffer-modified-p nil)))

(defun dwell-callers-toggle ()
  "Unfold the row at point, or fold it."
  (interactive nil dwell-callers-mode)
  (let ((row (dwell-callers--row))
        (way (dwell-callers--way)))
    (cond ((not (dwell-callers--leads-p row)) (user-error "Dwell: the callers of these stacks are not known"))
          ((member way dwell-callers--open) (dwell-callers--fold way))
          (t (push way dwell-callers--open)
             (dwell-callers--unfold way)))))

(defun dwell-callers--fold (way)
  "Fold the row of WAY."
  (let ((inhibit-read-only t))
    (setq dwell-callers--open (delete way dwell-callers--open))
    (save-excursion
      (goto-char (dwell-callers--place way))
      (dwell-callers--mark (point) ?+)
      (forward-line 1)
      (let ((beg (point)))
        (while (dwell-callers--inside-p way) (forward-line 1))
        (delete-region beg (point))))
    (set-buffer-modified-p nil)))

(defun dwell-callers--unfold (way)
  "Ask for the rows behind WAY and insert them."
  (dwell-callers--ask way
                      (lambda (result)
                        ;; The tree may be another one by now, or the row folded again.
                        (when-let ((place (and (member way dwell-callers--open) (dwell-callers--place way))))
                          (dwell-callers--unfolded place way (plist-get result :rows))))))

(defun dwell-callers--unfolded (place way rows)
  "Insert ROWS behind the row of WAY at PLACE, unless they are there."
  (let ((inhibit-read-only t))
    (save-excursion
      (goto-char place)
      (dwell-callers--mark place (if (seq-empty-p rows) ?\s ?-))
      (forward-line 1)
      (unless (dwell-callers--inside-p way) (dwell-callers--insert rows way)))
    (when (seq-empty-p rows)
      (message "Dwell: %s" (if dwell-callers--callees "it calls nothing" "nothing calls it: the stacks begin there")))
    (set-buffer-modified-p nil)))

;;;; Moving

(defun dwell-callers-next (&optional count)
  "Move to the COUNTth next row."
  (interactive "p" dwell-callers-mode)
  (let ((start (point)))
    (forward-line (or count 1))
    (unless (dwell-callers--way)
      (goto-char start)
      (user-error "Dwell: no more rows"))))

(defun dwell-callers-previous (&optional count)
  "Move to the COUNTth previous row."
  (interactive "p" dwell-callers-mode)
  (dwell-callers-next (- (or count 1))))

(defun dwell-callers-up ()
  "Move to the row that this one was unfolded from."
  (interactive nil dwell-callers-mode)
  (let ((way (dwell-callers--way)))
    (goto-char (or (and (> (length way) 1) (dwell-callers--place (seq-take way (1- (length way)))))
                   (point-min)))))

(defun dwell-callers-turn ()
  "Show what the function calls instead of who calls it, or the reverse."
  (interactive nil dwell-callers-mode)
  (setq dwell-callers--callees (not dwell-callers--callees)
        dwell-callers--open nil)
  (dwell-callers--fetch))

(defun dwell-callers-visit (&optional other-window)
  "Visit the call of the row at point, in OTHER-WINDOW if non-nil.
Of several calls, the one with the most samples."
  (interactive nil dwell-callers-mode)
  (when (mouse-event-p last-input-event) (mouse-set-point last-input-event))
  (let* ((root (get-text-property (line-beginning-position) 'dwell-root))
         (row (or root (dwell-callers--row)))
         (sites (plist-get row :sites))
         (place (if (seq-empty-p sites) (plist-get row :place) (seq-elt sites 0))))
    (unless place (user-error "Dwell: no source is known for this call"))
    (dwell--visit (plist-get place :uri) (plist-get place :line) other-window)))

(defun dwell-callers-visit-other-window ()
  "Visit the call of the row at point in another window."
  (interactive nil dwell-callers-mode)
  (dwell-callers-visit t))

(provide 'dwell-callers)
;;; dwell-callers.el ends here
