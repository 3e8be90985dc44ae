;;; dwell-lines.el --- What each line costs, at its end  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/fileCosts' and, while epochs are compared, `dwell/fileChanges'.  Out:
;; overlays: a line's cost after its end, a procedure's totals above it; eldoc; movement between hot
;; lines and to culprits.
;;
;; What must never happen here: a number on a line that it does not belong to.  The server answers
;; for the text that it was sent, so changes are sent before the question, and an answer is drawn
;; only if the text is still that one.  From then on an overlay keeps to its line's text: each change
;; compares the text of the lines it touched with the text the cost was measured for, and an overlay
;; whose line differs says so (and recovers when the change is undone); one whose line is gone goes
;; too.

;;; Code:

(require 'dwell-client)
(require 'dwell-sync)
(require 'dwell-view)
(require 'dwell-words)


(defcustom dwell-show-procedures t
  "Whether a function's totals are shown above it."
  :type 'boolean
  :group 'dwell)

(defcustom dwell-show-fringe t
  "Whether hot lines are marked in the left fringe."
  :type 'boolean
  :group 'dwell)

(defcustom dwell-refresh-delay 0.3
  "Seconds of idleness after which a changed profile is shown."
  :type 'number
  :group 'dwell)

(defface dwell-procedure '((t :inherit shadow :slant italic))
  "Face for a function's totals above it."
  :group 'dwell)

(defface dwell-stale '((t :inherit shadow :strike-through t))
  "Face for the cost of a line that was edited since."
  :group 'dwell)

(defvar-local dwell--costs nil
  "The server's costs of this buffer's file.")

(defvar-local dwell--differences nil
  "What changed in this buffer's file, while recordings are compared.")

(defvar-local dwell--since nil
  "What changed since the recordings compared with, else since the one before.")

(defvar-local dwell--costs-tick nil
  "`buffer-chars-modified-tick' of the text that the costs are of.")

(defvar-local dwell--fetching nil
  "Token of the newest request for costs, while it is unanswered.")

(defvar-local dwell--outdated nil
  "Non-nil when the costs should be asked for again.")

(defvar dwell--refresh-timer nil
  "Timer that will refresh the visible buffers.")

(defvar dwell-mode)

;;;; Drawing

(defun dwell--overlays (&optional beg end kind)
  "Return this buffer's overlays from BEG to END of KIND, by position."
  (save-restriction
    (widen)
    (sort (seq-filter (lambda (overlay)
                        (let ((property (overlay-get overlay 'dwell)))
                          (and property (or (null kind) (eq kind property)))))
                      (overlays-in (or beg (point-min)) (or end (point-max))))
          (lambda (a b) (< (overlay-start a) (overlay-start b))))))

(defun dwell--clear ()
  "Remove this buffer's overlays."
  (mapc #'delete-overlay (dwell--overlays)))

(defun dwell--shown-p (cost)
  "Return non-nil if the user wants to see COST."
  (pcase dwell-hints
    ('all t)
    ('hot (or (>= (* 100 (plist-get cost :share)) dwell-hot-percent)
              (when-let ((change (plist-get cost :change)))
                (and (dwell--significant-p change)
                     (>= (* 100 (abs (plist-get change :changeShare))) dwell-hot-percent)))))))

(defun dwell--with-changes (costs changes)
  "Return COSTS with the change of each line out of CHANGES, both vectors by line.
A line that costs nothing any more is there for its change."
  (if (seq-empty-p changes) costs
    (let ((by-line (make-hash-table)) rows)
      (seq-doseq (change changes) (puthash (plist-get change :line) change by-line))
      (seq-doseq (cost costs)
        (let* ((line (plist-get cost :line)) (change (gethash line by-line)))
          (remhash line by-line)
          (push (if change (append (list :change change) cost) cost) rows)))
      (maphash (lambda (line change)
                 (when (dwell--significant-p change)
                   (push (list :line line :share 0.0 :culprits [] :ties [] :change change) rows)))
               by-line)
      (vconcat (sort rows (lambda (a b) (< (plist-get a :line) (plist-get b :line))))))))

(defun dwell--draw ()
  "Draw this buffer's costs; its text is the text that they are of."
  (dwell--clear)
  (when dwell--costs
    (dwell--each-line (dwell--with-changes (plist-get dwell--costs :lines)
                                           (plist-get dwell--differences :lines))
                      (lambda (cost) (when (dwell--shown-p cost) (dwell--draw-line cost))))
    (dwell--each-line (or (plist-get dwell--costs :stale) [])
                      (lambda (cost) (when (dwell--shown-p cost) (dwell--draw-edited cost))))
    (when (and dwell-show-procedures (not (eq dwell-hints 'off)))
      (dwell--each-line (plist-get dwell--costs :procedures)
                        (lambda (cost) (when (dwell--shown-p cost) (dwell--draw-procedure cost)))))))

(defun dwell--each-line (costs function)
  "Call FUNCTION with each of COSTS, a vector by ascending line, at its line.
Those past the end of the buffer are passed over."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-min))
      (cl-loop with line = 0
               for cost across costs
               for wanted = (plist-get cost :line)
               while (and (zerop (forward-line (- wanted line))) (bolp))
               do (setq line wanted)
               unless (and (eobp) (not (bobp)))
               do (funcall function cost)))))

(defun dwell--draw-line (cost)
  "Draw COST at the end of the line at point."
  (let ((overlay (make-overlay (line-beginning-position) (line-end-position) nil t nil)))
    (overlay-put overlay 'dwell 'line)
    (overlay-put overlay 'dwell-cost cost)
    (overlay-put overlay 'dwell-text (dwell--line-text overlay))
    (dwell--show-line overlay nil)))

(defun dwell--draw-edited (cost)
  "Say at the line at point that it was edited since it had COST."
  (let ((overlay (make-overlay (line-beginning-position) (line-end-position) nil t nil)))
    (overlay-put overlay 'dwell 'line)
    (overlay-put overlay 'dwell-cost cost)
    ;; No text makes it good again: what was measured is not known here.
    (overlay-put overlay 'dwell-text nil)
    (dwell--show-line overlay t)))

(defun dwell--line-text (overlay)
  "Return the text that OVERLAY is over."
  (buffer-substring-no-properties (overlay-start overlay) (overlay-end overlay)))

(defun dwell--show-line (overlay stale)
  "Show the cost of OVERLAY, as of an edited line if STALE."
  (let* ((cost (overlay-get overlay 'dwell-cost))
         (label (if stale
                    (propertize (concat "edited · was " (dwell--format-short-share (plist-get cost :share)))
                                'face 'dwell-stale)
                  (dwell--line-label cost (dwell--room overlay)))))
    (overlay-put overlay 'dwell-stale stale)
    (overlay-put overlay 'after-string
                 ;; The property keeps the cursor before the text at the line's end.
                 (concat (propertize "  " 'cursor t)
                         (propertize label 'help-echo
                                     (if stale "Edited since it was measured"
                                       (lambda (&rest _) (dwell--line-details cost))))))
    (overlay-put overlay 'before-string
                 (and dwell-show-fringe (not stale) (fboundp 'define-fringe-bitmap)
                      (>= (plist-get cost :share) 0.02)
                      (propertize "!" 'display
                                  (list 'left-fringe 'vertical-bar
                                        (dwell--heat (plist-get cost :share))))))))

(defun dwell--room (overlay)
  "Return how many columns are free after the line of OVERLAY.
Nil: what does not fit is cut off, and no other text is moved by it."
  (when-let ((window (and (not truncate-lines) (get-buffer-window nil t))))
    ;; Two columns between text and cost, one for the mark of a line that goes on.
    (- (window-body-width window) 3
       (save-excursion (goto-char (overlay-end overlay)) (current-column)))))

(defun dwell--resized (window)
  "Fit the costs of lines to WINDOW, which has another size now."
  (when (window-live-p window)
    (with-current-buffer (window-buffer window)
      (dolist (overlay (dwell--overlays nil nil 'line))
        (dwell--show-line overlay (overlay-get overlay 'dwell-stale))))))

(defvar dwell-procedure-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mouse-1] #'dwell-procedure-clicked)
    (define-key map [mouse-2] #'dwell-procedure-clicked)
    map)
  "Keymap of the totals above a function.")

(defun dwell--draw-procedure (cost)
  "Draw COST, a function's, above the line at point."
  (let ((overlay (make-overlay (line-beginning-position) (line-end-position) nil t nil)))
    (overlay-put overlay 'dwell 'procedure)
    (overlay-put overlay 'dwell-cost cost)
    (overlay-put overlay 'dwell-text (dwell--line-text overlay))
    (dwell--show-procedure overlay nil)))

(defun dwell--show-procedure (overlay stale)
  "Show the totals of OVERLAY, as of an edited function if STALE."
  (let* ((cost (overlay-get overlay 'dwell-cost))
         (indent (and (string-match "\\`[ \t]*" (overlay-get overlay 'dwell-text))
                      (match-string 0 (overlay-get overlay 'dwell-text))))
         (change (and (not stale) (dwell--change-since cost)))
         (label (dwell--join (and stale "edited")
                             (plist-get cost :title)
                             (plist-get cost :label)
                             (and change (not (dwell--significant-p change)) "as before"))))
    (overlay-put overlay 'dwell-stale stale)
    (overlay-put overlay 'before-string
                 (concat indent
                         (propertize label 'face (if stale 'dwell-stale 'dwell-procedure)
                                     'mouse-face 'highlight 'keymap dwell-procedure-map
                                     'dwell-procedure (plist-get cost :id)
                                     'help-echo "mouse-1: the listing, with stalls and culprits")
                         (if (and change (dwell--significant-p change))
                             (concat (propertize " · " 'face 'dwell-procedure)
                                     (propertize (plist-get change :label) 'face (dwell--change-face change)
                                                 'help-echo (plist-get change :details)))
                           "")
                         "\n"))))

(defun dwell--change-since (cost)
  "Return the change of the function of COST, or nil where none is known."
  (let ((here (seq-filter (lambda (change) (= (plist-get change :line) (plist-get cost :line)))
                          (plist-get dwell--since :procedures))))
    ;; Instances of a generic procedure begin on one line: their names tell them apart.
    (or (seq-find (lambda (change) (string-suffix-p (concat ":" (plist-get change :name)) (plist-get cost :id))) here)
        (and (= 1 (length here)) (car here)))))

(defun dwell-procedure-clicked (event)
  "Show the listing of the function whose totals EVENT is on."
  (interactive "e")
  (when-let ((string (posn-string (event-end event)))
             (id (get-text-property (cdr string) 'dwell-procedure (car string))))
    (dwell--show 'listing id)))

;;;; Keeping to the text

(defun dwell--settle (beg end _old-length)
  "Set the overlays right whose lines the change from BEG to END touched."
  (save-match-data
    (save-excursion
      (save-restriction
        (widen)
        (let* ((from (progn (goto-char beg) (line-beginning-position)))
               (to (progn (goto-char end) (min (point-max) (1+ (line-end-position)))))
               (seen nil))
          (dolist (overlay (dwell--overlays from to))
            (goto-char (overlay-start overlay))
            (let ((key (cons (overlay-get overlay 'dwell) (line-beginning-position))))
              (if (or (= (overlay-start overlay) (overlay-end overlay)) (member key seen))
                  ;; The line was deleted, or joined to one before it.
                  (delete-overlay overlay)
                (push key seen)
                (dwell--settle-overlay overlay)))))))))

(defun dwell--settle-overlay (overlay)
  "Fit OVERLAY to the line at point; say so if its text is not the measured one."
  (move-overlay overlay (line-beginning-position) (line-end-position))
  (let ((stale (not (equal (dwell--line-text overlay) (overlay-get overlay 'dwell-text)))))
    (unless (eq stale (overlay-get overlay 'dwell-stale))
      (if (eq (overlay-get overlay 'dwell) 'line)
          (dwell--show-line overlay stale)
        (dwell--show-procedure overlay stale)))))

;;;; Asking

(defun dwell--refresh ()
  "Ask for this buffer's costs again and draw them."
  (when dwell--document
    (setq dwell--outdated nil)
    (let ((token (setq dwell--fetching (list nil)))
          (tick (buffer-chars-modified-tick)))
      (dwell--send-changes)
      (dwell--request
       dwell--document-connection :dwell/fileCosts `(:textDocument (:uri ,dwell--document))
       (lambda (costs)
         (when (eq token dwell--fetching)
           (setq dwell--since nil)
           (if (dwell--baseline dwell--document-connection)
               (dwell--fetch-differences token tick costs)
             (setq dwell--differences nil)
             (dwell--fetched tick costs nil)
             ;; Costs do not wait for what procedures were in the epoch before.
             (unless (seq-empty-p (plist-get costs :procedures)) (dwell--fetch-since costs)))))
       (lambda (problem)
         (when (eq token dwell--fetching) (dwell--fetched tick nil problem)))))))

(defun dwell--fetch-differences (token tick costs)
  "Ask what changed, then draw it and COSTS, of the text of TICK.
TOKEN is that of the request for costs."
  (dwell--request
   dwell--document-connection :dwell/fileChanges `(:textDocument (:uri ,dwell--document))
   (lambda (changes)
     (when (eq token dwell--fetching)
       (setq dwell--differences changes dwell--since changes)
       (dwell--fetched tick costs nil)))
   (lambda (problem)
     (when (eq token dwell--fetching)
       (setq dwell--differences nil)
       (dwell--complain dwell--document-connection problem)
       (dwell--fetched tick costs nil)))))

(defun dwell--fetch-since (costs)
  "Ask what changed since the recording before that of COSTS, for the totals."
  (dwell--request
   dwell--document-connection :dwell/fileChanges `(:textDocument (:uri ,dwell--document))
   (lambda (changes)
     (when (eq costs dwell--costs)
       (setq dwell--since changes)
       (dolist (overlay (dwell--overlays nil nil 'procedure))
         (dwell--show-procedure overlay (overlay-get overlay 'dwell-stale)))))
   #'ignore))

(defun dwell--fetched (tick costs problem)
  "Draw COSTS, which are of the text of TICK, or show PROBLEM, why there are none."
  (setq dwell--fetching nil)
  (cond
   ((/= tick (buffer-chars-modified-tick))
    ;; Typed into meanwhile: these lines may be others by now.
    (setq dwell--outdated t)
    (dwell--refresh-soon))
   ((null problem)
    (setq dwell--costs costs dwell--costs-tick tick)
    (dwell--draw)
    (force-mode-line-update))
   ((not (dwell--passing-p problem))
    (setq dwell--costs nil)
    (dwell--clear)
    (when dwell--document-connection (dwell--complain dwell--document-connection problem)))))

(defun dwell--refresh-soon ()
  "Refresh the visible buffers that are outdated once Emacs is idle."
  (unless dwell--refresh-timer
    (setq dwell--refresh-timer (dwell--soon dwell-refresh-delay #'dwell--refresh-visible))))

(defun dwell--refresh-visible ()
  "Refresh the outdated buffers that a window shows."
  (setq dwell--refresh-timer nil)
  (dolist (buffer (buffer-list))
    (when (and (buffer-local-value 'dwell--outdated buffer) (get-buffer-window buffer t))
      (with-current-buffer buffer (dwell--revisit)))))

(defvar-local dwell--revisit-function nil
  "Function that shows the changed profile in a buffer that is not a file's.")

(defun dwell--revisit (&rest _)
  "Refresh this buffer if it is outdated."
  (when dwell--outdated
    (if dwell--revisit-function
        (progn (setq dwell--outdated nil) (funcall dwell--revisit-function))
      (dwell--refresh))))

(defun dwell--window-shows (window)
  "Refresh the buffer that WINDOW shows from now on if it is outdated."
  (when (and (window-live-p window)
             (buffer-local-value 'dwell--outdated (window-buffer window)))
    (dwell--refresh-soon)))

(defun dwell--profile-changed (connection)
  "Refresh all that shows CONNECTION's profile, what is hidden when it is seen."
  (dolist (buffer (buffer-list))
    (when (and (or (buffer-local-value 'dwell--document buffer)
                   (buffer-local-value 'dwell--revisit-function buffer))
               (equal (dwell--key connection) (buffer-local-value 'dwell--buffer-key buffer)))
      (with-current-buffer buffer (setq dwell--outdated t))))
  (dwell--refresh-soon))

(defun dwell-refresh ()
  "Ask for this buffer's costs again."
  (interactive)
  (unless dwell--document (user-error "Dwell: `dwell-mode' is off here, or its server is missing"))
  (dwell--refresh))

;;;; Commands on lines

(defun dwell--cost-here (&optional any)
  "Return the cost of the line at point.
Signal when it has none, or, unless ANY, when it was edited since."
  (let ((overlay (car (dwell--overlays (line-beginning-position)
                                       (min (point-max) (1+ (line-beginning-position))) 'line))))
    (cond ((null overlay) nil)
          ((and (overlay-get overlay 'dwell-stale) (not any))
           (user-error "Dwell: this line was edited since it was measured"))
          (t (overlay-get overlay 'dwell-cost)))))

(defun dwell-eldoc-function (callback &rest _)
  "Give CALLBACK the cost of the line at point, for eldoc."
  (when-let ((overlay (car (dwell--overlays (line-beginning-position) (line-end-position) 'line))))
    (unless (overlay-get overlay 'dwell-stale)
      (funcall callback (dwell--line-details (overlay-get overlay 'dwell-cost))
               :thing "Dwell" :face 'dwell-culprit))))

(defun dwell-next-line (&optional count)
  "Move to the COUNTth next line that shows its cost."
  (interactive "p")
  (dotimes (_ (abs (or count 1)))
    (let ((places (mapcar #'overlay-start (dwell--overlays nil nil 'line)))
          (here (line-beginning-position)))
      (goto-char (or (if (< (or count 1) 0)
                         (car (last (seq-filter (lambda (place) (< place here)) places)))
                       (seq-find (lambda (place) (> place here)) places))
                     (user-error "Dwell: no more lines with a cost")))
      (back-to-indentation))))

(defun dwell-previous-line (&optional count)
  "Move to the COUNTth previous line that shows its cost."
  (interactive "p")
  (dwell-next-line (- (or count 1))))

(defun dwell-hottest-line ()
  "Move to the costliest line of this buffer."
  (interactive)
  (let ((overlays (dwell--overlays nil nil 'line)))
    (unless overlays (user-error "Dwell: no line shows its cost"))
    (push-mark nil t)
    (goto-char (overlay-start
                (car (sort overlays
                           (lambda (a b) (> (plist-get (overlay-get a 'dwell-cost) :share)
                                            (plist-get (overlay-get b 'dwell-cost) :share)))))))
    (back-to-indentation)))

(defun dwell-goto-culprit ()
  "Move to the line that the cost of this one is blamed on."
  (interactive)
  (let* ((cost (or (dwell--cost-here) (user-error "Dwell: this line shows no cost")))
         (culprit (or (seq-find (lambda (culprit) (plist-get culprit :line)) (plist-get cost :culprits))
                      (user-error "Dwell: no culprit is known for this line"))))
    (push-mark nil t)
    (dwell--visit (or (plist-get culprit :uri) dwell--document) (plist-get culprit :line))
    (message "Dwell: %s" (dwell--format-culprit culprit))))

(defun dwell--procedures-here ()
  "Return the functions that the line at point is of, as the server takes them."
  (when-let ((overlay (car (dwell--overlays (line-beginning-position) (line-end-position)))))
    (let ((cost (overlay-get overlay 'dwell-cost)))
      (if (eq (overlay-get overlay 'dwell) 'procedure)
          (list (plist-get cost :id))
        (append (plist-get cost :procedures) nil)))))

(defun dwell--read-procedure (here)
  "Let the user choose a function; those of HERE come first."
  (let* ((result (dwell--await (dwell--ensure) :dwell/hotProcedures
                               (list :by "procedure" :limit 500)))
         (rows (append (plist-get result :rows) nil))
         (choices (delete-dups (append here (mapcar (lambda (row) (plist-get row :id)) rows))))
         (table (lambda (string predicate action)
                  (if (eq action 'metadata)
                      `(metadata (category . dwell-procedure)
                                 (display-sort-function . identity)
                                 (annotation-function
                                  . ,(lambda (choice)
                                       (when-let ((row (seq-find (lambda (row) (equal choice (plist-get row :id)))
                                                                 rows)))
                                         (format "  %s  %s" (dwell--format-share (plist-get row :share))
                                                 (plist-get row :label))))))
                    (complete-with-action action choices string predicate)))))
    (completing-read (format-prompt "Listing of the function" (car choices))
                     table nil nil nil nil (car choices))))

(defun dwell--visit (uri line &optional other-window)
  "Show LINE, from 0, of the file of URI, in another window if OTHER-WINDOW."
  (let ((file (dwell--file uri)))
    (unless (and file (file-readable-p file))
      (user-error "Dwell: the source is not here: %s" (or file uri)))
    (let ((buffer (find-file-noselect file)))
      (if other-window (pop-to-buffer buffer) (switch-to-buffer buffer)))
    (widen)
    (goto-char (point-min))
    (forward-line line)
    (back-to-indentation)))

;;;###autoload
(defun dwell-set-hints (level)
  "Set LEVEL, which lines show their cost: `off', `hot' or `all'."
  (interactive
   (list (intern (completing-read (format "Show the cost of lines (now %s): " dwell-hints)
                                  '("off" "hot" "all") nil t))))
  (setq dwell-hints level)
  (maphash (lambda (_ connection)
             (dwell--notify connection :workspace/didChangeConfiguration
                            `(:settings (:dwell ,(dwell--server-options)))))
           dwell--connections)
  (dolist (buffer (buffer-list))
    (when (buffer-local-value 'dwell--document buffer)
      (with-current-buffer buffer
        (cond ((eq level 'off) (dwell--clear))
              ((eql dwell--costs-tick (buffer-chars-modified-tick)) (dwell--draw))
              ;; These costs are of another text.
              (t (setq dwell--outdated t)
                 (dwell--refresh-soon)))))))

(provide 'dwell-lines)
;;; dwell-lines.el ends here
