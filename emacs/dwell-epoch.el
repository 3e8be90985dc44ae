;;; dwell-epoch.el --- Dwell's epochs: choose, record, begin  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: what the user chooses.  Out: the server's commands for epochs, their progress in the echo
;; area and the mode line.

;;; Code:

(require 'dwell-client)
(require 'crm)
(require 'shell)

(defvar dwell-record-history nil
  "Commands that were recorded.")

(defvar dwell--recording nil
  "What is being recorded: plist of :cancel, :token, :connection and :progress.")

;;;; Which are shown

(defun dwell--epoch-label (epoch)
  "Return what EPOCH, an `EpochSummary', is called."
  (or (plist-get epoch :name) (plist-get epoch :id)))

(defun dwell--note-selected (connection)
  "Ask CONNECTION's server which epochs it shows, for the mode line."
  (dwell--ask
   connection :dwell/epochs (make-hash-table)
   (lambda (result)
     (setf (dwell--selected connection)
           (if (seq-empty-p (plist-get result :epochs)) '("no epochs")
             (mapcar (lambda (selector)
                       (if-let ((epoch (seq-find (lambda (epoch) (equal selector (plist-get epoch :id)))
						 (plist-get result :epochs))))
                           (dwell--epoch-label epoch)
			 selector))
                     (plist-get result :selected))))
     (force-mode-line-update t))))

(defun dwell--epoch-choices (result)
  "Return an alist of choice to epoch for RESULT, newest first.
An epoch goes by its name where that is enough to tell it."
  (let ((epochs (reverse (append (plist-get result :epochs) nil))))
    (mapcar (lambda (epoch)
              (let ((name (plist-get epoch :name)))
                (cons (if (and name (not (string-search "," name))
                               (= 1 (cl-count name epochs :test #'equal
                                              :key (lambda (other) (plist-get other :name)))))
                          name
                        (plist-get epoch :id))
                      epoch)))
            epochs)))

(defun dwell--epoch-annotation (epoch)
  "Return what tells EPOCH from others."
  (let* ((start (plist-get epoch :start))
         (events (plist-get epoch :events))
         (samples (cl-loop for (_ event) on events by #'cddr sum (plist-get event :samples)))
         (lost (cl-loop for (_ event) on events by #'cddr sum (plist-get event :lost))))
    (concat "  " (replace-regexp-in-string "T" " " (substring start 0 (min 16 (length start))))
            (if (plist-get epoch :end) "" " (running)")
            "  " (dwell--format-samples samples)
            (if (> lost 0) (format ", %d lost" lost) "")
            "  " (plist-get epoch :scope) "  " (plist-get epoch :host))))

(defun dwell--format-samples (count)
  "Return COUNT samples in words."
  (format "%d sample%s" count (if (= count 1) "" "s")))

(defun dwell--read-epochs (result)
  "Let the user choose epochs out of RESULT; return a list."
  (let* ((choices (dwell--epoch-choices result))
         (table (lambda (string predicate action)
                  (if (eq action 'metadata)
                      `(metadata (category . dwell-epoch)
                                 (display-sort-function . identity)
                                 (annotation-function
                                  . ,(lambda (choice)
                                       (when-let ((epoch (cdr (assoc choice choices))))
                                         (dwell--epoch-annotation epoch)))))
                    (complete-with-action action (cons "latest" choices) string predicate)))))
    (or (delete "" (completing-read-multiple "Epochs to show (several are merged): " table nil nil))
        (user-error "Dwell: no epoch chosen"))))

;;;###autoload
(defun dwell-select-epoch (epochs)
  "Show EPOCHS, a list of ids or names; several are merged."
  (interactive
   (list (let ((result (dwell--await (dwell--ensure) :dwell/epochs (make-hash-table))))
           (when (seq-empty-p (plist-get result :epochs))
             (user-error "Dwell: the database has no epochs yet; `M-x dwell-record' makes one"))
           (dwell--read-epochs result))))
  (let ((connection (dwell--ensure)))
    ;; What was wrong with other epochs may be wrong with these, and is worth saying again.
    (setf (dwell--said connection) nil)
    (dwell--execute connection "dwell.server.selectEpochs" (vector (vconcat epochs))
                    (lambda (_) (message "Dwell: showing %s" (string-join epochs " + "))))))

;;;###autoload
(defun dwell-new-epoch (name)
  "Ask the running daemon to start a new epoch with NAME, which may be empty."
  (interactive "sName of the new epoch (empty for none): ")
  (dwell--execute (dwell--ensure) "dwell.server.newEpoch"
                  (vector (if (string-empty-p name) (make-hash-table) (list :name name)))
                  (lambda (_) (message "Dwell: a new epoch has begun"))))

;;;; Recording

;;;###autoload
(defun dwell-record (command &optional name)
  "Run COMMAND, a list of strings, and record it as a new epoch, then show it.
With a prefix argument ask for the epoch's NAME.  The command runs in
`default-directory'; `dwell-record-cancel' ends it."
  (interactive
   (list (split-string-shell-command
          (read-shell-command "Record the command: " nil 'dwell-record-history))
         (and current-prefix-arg (read-string "Name of the epoch: "))))
  (unless command (user-error "Dwell: no command given"))
  (when dwell--recording
    (user-error "Dwell: a recording runs; `M-x dwell-record-cancel' ends it"))
  (let* ((connection (dwell--ensure))
         (token (format "dwell-record-%s" (random)))
         (recording (list :connection connection :token token :progress nil :cancel nil)))
    (setq dwell--recording recording)
    (plist-put recording :cancel (dwell--record-request connection token command name))
    (dwell--tell-progress (concat "recording " (string-join command " ")))))

(defun dwell--record-request (connection token command name)
  "Have CONNECTION's server record COMMAND as NAME, its progress under TOKEN.
Return a function that cancels it."
  (dwell--ask
   connection :workspace/executeCommand
   `(:command "dwell.server.record" :workDoneToken ,token
     :arguments [( :command ,(vconcat command) :cwd ,(expand-file-name default-directory)
                   ,@(and name (not (string-empty-p name)) (list :name name)))])
   #'dwell--recorded
   (lambda (problem)
     (setq dwell--recording nil)
     (force-mode-line-update t)
     (message "Dwell: not recorded: %s" (plist-get problem :message)))))

(defun dwell--recorded (result)
  "Show RESULT, that of a recording."
  (setq dwell--recording nil)
  (force-mode-line-update t)
  (let ((output (plist-get result :output)))
    (unless (member output '(nil ""))
      (with-current-buffer (get-buffer-create "*Dwell output*")
        (let ((inhibit-read-only t))
          (erase-buffer)
          (insert output)
          (special-mode))))
    (message "Dwell: recorded epoch %s%s" (plist-get result :epoch)
             (if (member output '(nil "")) "" "; the output is in *Dwell output*"))))

;;;###autoload
(defun dwell-record-cancel ()
  "End the recording that runs."
  (interactive)
  (unless dwell--recording (user-error "Dwell: nothing is being recorded"))
  (let ((connection (plist-get dwell--recording :connection)))
    (funcall (plist-get dwell--recording :cancel))
    (dwell--notify connection :window/workDoneProgress/cancel
                   (list :token (plist-get dwell--recording :token)))
    (dwell--tell-progress "cancelling the recording")))

(defun dwell--progress (connection method params)
  "Show the progress PARAMS if METHOD says that of a recording at CONNECTION."
  (when (and (eq method '$/progress) dwell--recording
             (eq connection (plist-get dwell--recording :connection)))
    (let* ((value (plist-get params :value))
           (percentage (plist-get value :percentage)))
      ;; A server may report under our token or under one of its own.
      (unless (equal (plist-get value :kind) "end")
        (dwell--tell-progress
         (string-join (delq nil (list (and percentage (format "%d%%" percentage))
                                      (or (plist-get value :message) (plist-get value :title))))
                      " "))))))

(defun dwell--tell-progress (text)
  "Show TEXT, what the recording does."
  (plist-put dwell--recording :progress text)
  (force-mode-line-update t)
  (unless (active-minibuffer-window)
    (let ((message-log-max nil))
      (message "Dwell: %s" (truncate-string-to-width text (max 20 (- (frame-width) 10)) nil nil "…")))))

(defun dwell--forget-recording (connection)
  "Forget the recording of CONNECTION, whose server stopped."
  (when (eq connection (plist-get dwell--recording :connection))
    (setq dwell--recording nil)))

(add-hook 'dwell-notification-functions #'dwell--progress)
(add-hook 'dwell-stopped-functions #'dwell--forget-recording)
(add-hook 'dwell-ready-functions #'dwell--note-selected)

(provide 'dwell-epoch)
;;; dwell-epoch.el ends here
