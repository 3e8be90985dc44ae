;;; dwell-epoch-list.el --- The epochs of a database, as a list  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/epochs'.  Out: a list of epochs to show, merge, compare, name and remove.
;; What removes anything asks first.

;;; Code:

(require 'dwell-epoch)
(require 'dwell-table)
(require 'dwell-view)


(defface dwell-epoch-shown '((t :inherit bold))
  "Face for a recording that is shown."
  :group 'dwell)

(defvar-local dwell-epochs--marked nil
  "Ids of the recordings that are marked.")

(defvar-local dwell-epochs--result nil
  "The server's answer that is shown.")

(defvar dwell-epochs-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map dwell-table-mode-map)
    (pcase-dolist (`(,key . ,command)
                   '(("RET" . dwell-epochs-show) ("m" . dwell-epochs-mark) ("u" . dwell-epochs-unmark)
                     ("U" . dwell-epochs-unmark-all) ("=" . dwell-epochs-diff) ("b" . dwell-epochs-compare)
                     ("B" . dwell-compare-end) ("R" . dwell-epochs-rename) ("D" . dwell-epochs-remove)
                     ("+" . dwell-new-epoch) ("r" . dwell-record) ("P" . dwell-record-process)
                     ("i" . dwell-import-perf) ("h" . dwell-hot-procedures)))
      (define-key map (kbd key) command))
    map)
  "Keymap of `dwell-epochs-mode'.")

(define-derived-mode dwell-epochs-mode dwell-table-mode "Dwell-Epochs"
  "The recordings of the database, newest first; `*' are shown, `b' compared with.

\\{dwell-epochs-mode-map}"
  :interactive nil
  (setq dwell--revisit-function #'dwell-epochs--fetch
        dwell-table--entry-function #'dwell-epochs--entry
        dwell-table--empty-function
        (lambda ()
          (concat "No recordings yet: \\[dwell-record] records a command, \\[dwell-record-process] a process, "
                  "\\[dwell-import-perf] imports a perf.data."))))

;;;###autoload
(defun dwell-epochs ()
  "List the recordings of the database."
  (interactive)
  (let ((buffer (dwell--view-buffer "epochs" 'dwell-epochs-mode)))
    (with-current-buffer buffer (dwell-epochs--fetch))
    (pop-to-buffer buffer)))

(defun dwell-epochs--fetch ()
  "Ask for the recordings and show them."
  (dwell--request (dwell--ensure) :dwell/epochs (make-hash-table) #'dwell-epochs--show))

(defun dwell-epochs--show (result)
  "Show RESULT, newest first."
  (setq dwell-epochs--result result
        dwell-epochs--marked (seq-intersection dwell-epochs--marked
                                               (mapcar (lambda (epoch) (plist-get epoch :id))
                                                       (plist-get result :epochs))))
  (dwell-table--show
   (reverse (append (plist-get result :epochs) nil))
   `[("" 3 nil) ("Recording" 22 t) ("Began" 16 t) ("Lasted" 9 ,(dwell-table--order #'dwell-epochs--seconds) :right-align t)
     ("Samples" 10 ,(dwell-table--order (lambda (epoch) (dwell--epoch-sum epoch :samples))) :right-align t)
     ("Lost" 7 ,(dwell-table--order (lambda (epoch) (dwell--epoch-sum epoch :lost))) :right-align t)
     ("Host" 12 t) ("What" 24 t)]
   (append (plist-get result :warnings)
           (seq-mapcat (lambda (epoch)
                         (mapcar (lambda (note) (format "%s: %s" (dwell--epoch-label epoch) note))
                                 (plist-get epoch :notes)))
                       (plist-get result :epochs))
           nil))
  (dwell-table--say (format "%d recordings" (length dwell-table--rows))))

(defun dwell-epochs--entry (epoch)
  "Return the list's columns for EPOCH."
  (let* ((id (plist-get epoch :id))
         (shown (eq t (plist-get epoch :shown)))
         (lost (dwell--epoch-sum epoch :lost)))
    (vector (concat (if (member id dwell-epochs--marked) ">" " ")
                    (if shown "*" " ")
                    (if (eq t (plist-get epoch :pinned)) "b" " "))
            (propertize (dwell--epoch-label epoch) 'face (if shown 'dwell-epoch-shown 'default)
                        'help-echo (format "%s, %s" id (plist-get epoch :cpu)))
            (dwell--format-time (plist-get epoch :start))
            (if-let ((seconds (dwell-epochs--seconds epoch)))
                (dwell--format-duration seconds)
              "running")
            (dwell--format-thousands (dwell--epoch-sum epoch :samples))
            (propertize (dwell--format-thousands lost) 'face (if (> lost 0) 'warning 'default))
            (plist-get epoch :host)
            (plist-get epoch :scope))))

(defun dwell-epochs--seconds (epoch)
  "Return how many seconds EPOCH took, or nil while it runs."
  (when-let ((end (plist-get epoch :end)))
    (condition-case nil
        (float-time (time-subtract (encode-time (iso8601-parse end))
                                   (encode-time (iso8601-parse (plist-get epoch :start)))))
      (error nil))))

(defun dwell--format-duration (seconds)
  "Return SECONDS in the two greatest units."
  (let ((seconds (round seconds)))
    (cond ((< seconds 60) (format "%d s" seconds))
          ((< seconds 3600) (format "%d m %02d s" (/ seconds 60) (% seconds 60)))
          ((< seconds 86400) (format "%d h %02d m" (/ seconds 3600) (/ (% seconds 3600) 60)))
          (t (format "%d d %02d h" (/ seconds 86400) (/ (% seconds 86400) 3600))))))

(defun dwell--format-thousands (count)
  "Return COUNT with a comma between thousands."
  (let ((text (number-to-string (round count))))
    (while (string-match "\\([0-9]\\)\\([0-9]\\{3\\}\\)\\($\\|,\\)" text)
      (setq text (replace-match "\\1,\\2\\3" t nil text)))
    text))

;;;; Marks

(defun dwell-epochs-mark ()
  "Mark the recording at point."
  (interactive nil dwell-epochs-mode)
  (cl-pushnew (plist-get (dwell-table--row) :id) dwell-epochs--marked :test #'equal)
  (dwell-table--print)
  (forward-line 1))

(defun dwell-epochs-unmark ()
  "Unmark the recording at point."
  (interactive nil dwell-epochs-mode)
  (setq dwell-epochs--marked (delete (plist-get (dwell-table--row) :id) dwell-epochs--marked))
  (dwell-table--print)
  (forward-line 1))

(defun dwell-epochs-unmark-all ()
  "Unmark all recordings."
  (interactive nil dwell-epochs-mode)
  (setq dwell-epochs--marked nil)
  (dwell-table--print))

(defun dwell-epochs--chosen ()
  "Return the ids of the marked recordings, oldest first, else of that at point."
  (if dwell-epochs--marked
      (seq-filter (lambda (id) (member id dwell-epochs--marked))
                  (mapcar (lambda (epoch) (plist-get epoch :id)) (plist-get dwell-epochs--result :epochs)))
    (list (plist-get (dwell-table--row) :id))))

;;;; Commands

(defun dwell-epochs-show ()
  "Show the marked recordings, merged; without marks the one at point."
  (interactive nil dwell-epochs-mode)
  (dwell-select-epoch (dwell-epochs--chosen)))

(defun dwell-epochs-diff ()
  "Show what changed from the older of two marked recordings to the newer.
Without marks, from the recording at point to those that are shown."
  (interactive nil dwell-epochs-mode)
  (pcase (dwell-epochs--chosen)
    (`(,before ,after) (dwell--show 'diff (list before) (list after)))
    (`(,before) (dwell--show 'diff (list before)))
    (_ (user-error "Dwell: mark two recordings, or none"))))

(defun dwell-epochs-compare ()
  "Show on the lines what changed since the marked recordings, or that at point."
  (interactive nil dwell-epochs-mode)
  (dwell-compare (dwell-epochs--chosen)))

(defun dwell-epochs-rename (epoch name)
  "Give EPOCH, an id, the NAME."
  (interactive
   (let ((row (dwell-table--row)))
     (list (plist-get row :id)
           (read-string (format "Name of %s: " (dwell--epoch-label row)) (plist-get row :name))))
   dwell-epochs-mode)
  (when (string-empty-p name) (user-error "Dwell: no name given"))
  (dwell-epochs--execute "dwell.server.renameEpoch" (list :epoch epoch :name name)
                         (format "%s is now named %s" epoch name)))

(defun dwell-epochs-remove (epochs)
  "Remove EPOCHS, a list of ids, for good, once the user says so."
  (interactive (list (dwell-epochs--chosen)) dwell-epochs-mode)
  (let ((samples (cl-loop for id in epochs
                          sum (dwell--epoch-sum (gethash id dwell-table--by-id) :samples))))
    (if (yes-or-no-p (format "Remove %s with %s samples for good? " (string-join epochs ", ")
                             (dwell--format-thousands samples)))
        (dwell-epochs--execute "dwell.server.removeEpochs" (vconcat epochs)
                               (format "removed %s" (string-join epochs ", ")))
      (message "Dwell: nothing was removed"))))

(defun dwell-epochs--execute (command argument done)
  "Execute the server's COMMAND with ARGUMENT; say DONE and look again."
  (let ((buffer (current-buffer)))
    (dwell--execute (dwell--ensure) command (vector argument)
                    (lambda (_)
                      (message "Dwell: %s" done)
                      (when (buffer-live-p buffer)
                        (with-current-buffer buffer (dwell-epochs--fetch)))))))

;;;; Before and after

;;;###autoload
(defun dwell-compare (before)
  "Show on the lines what changed since the recordings BEFORE, a list.
`dwell-compare-end' shows their costs alone again."
  (interactive (list (dwell--read-epochs "Compare with the recordings" (dwell--await-epochs))))
  (dwell--execute (dwell--ensure) "dwell.server.compare" (vector (list :before (vconcat before)))
                  (lambda (_) (message "Dwell: lines show what changed since %s" (string-join before " + ")))))

(defun dwell-compare-end ()
  "Compare with no recording any more."
  (interactive)
  (dwell--execute (dwell--ensure) "dwell.server.compare" [nil]
                  (lambda (_) (message "Dwell: compared no more"))))

(provide 'dwell-epoch-list)
;;; dwell-epoch-list.el ends here
