;;; dwell-epoch.el --- Dwell's epochs: choose, record, begin  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: what the user chooses.  Out: the server's commands for epochs, their progress in the echo
;; area and the mode line.

;;; Code:

(require 'dwell-client)
(require 'crm)
(require 'iso8601)
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
  "Ask CONNECTION's server which recordings it shows, for the mode line."
  (dwell--ask
   connection :dwell/epochs (make-hash-table)
   (lambda (result)
     (let ((epochs (plist-get result :epochs)))
       (setf (dwell--known-epochs connection) epochs
             (dwell--selected connection)
             (if (seq-empty-p epochs) '("no recordings")
               (dwell--epoch-labels (plist-get result :selected) epochs))
             (dwell--baseline connection)
             (dwell--epoch-labels (plist-get result :baseline) epochs)))
     (force-mode-line-update t)
     (run-hook-with-args 'dwell-selected-functions connection))))

(defun dwell--epoch-labels (selectors epochs)
  "Return what each of SELECTORS is called: an id out of EPOCHS by its name."
  (mapcar (lambda (selector)
            (if-let ((epoch (seq-find (lambda (epoch) (equal selector (plist-get epoch :id))) epochs)))
                (dwell--epoch-label epoch)
              selector))
          selectors))

(defun dwell--epochs-in-words (ids)
  "Return what the recordings of IDS, a vector, are called, for a title."
  (let ((connection (dwell--connection)))
    (string-join (dwell--epoch-labels ids (and connection (dwell--known-epochs connection))) " + ")))

(defun dwell--epoch-choices (result)
  "Return an alist of choice to recording for RESULT, newest first.
A recording goes by its name if no other recording has it."
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
  "Return what distinguishes EPOCH from others."
  (let ((start (plist-get epoch :start))
        (samples (dwell--epoch-sum epoch :samples))
        (lost (dwell--epoch-sum epoch :lost)))
    (concat "  " (dwell--format-time start)
            (if (plist-get epoch :end) "" " (running)")
            "  " (dwell--format-samples samples)
            (if (> lost 0) (format ", %d lost" lost) "")
            "  " (plist-get epoch :scope) "  " (plist-get epoch :host))))

(defun dwell--epoch-sum (epoch key)
  "Return the sum of KEY over the events of EPOCH."
  (cl-loop for (_ event) on (plist-get epoch :events) by #'cddr sum (plist-get event key)))

(defun dwell--format-time (time)
  "Return TIME, RFC 3339 in UTC, to the minute in the user's time zone."
  (condition-case nil
      (format-time-string "%F %R" (encode-time (iso8601-parse time)))
    (error time)))

(defun dwell--format-samples (count)
  "Return COUNT samples in words."
  (format "%d sample%s" count (if (= count 1) "" "s")))

(defun dwell--await-epochs ()
  "Return the server's recordings; signal when there are none."
  (let ((result (dwell--await (dwell--ensure) :dwell/epochs (make-hash-table))))
    (when (seq-empty-p (plist-get result :epochs))
      (user-error "Dwell: the database has no recordings yet; `M-x dwell-record' makes one"))
    result))

(defun dwell--read-epochs (prompt result)
  "Let the user choose recordings out of RESULT with PROMPT; return a list."
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
    (or (delete "" (completing-read-multiple (concat prompt " (several are merged): ") table nil nil))
        (user-error "Dwell: no recording chosen"))))

;;;###autoload
(defun dwell-select-epoch (epochs)
  "Show EPOCHS, a list of ids or names; several are merged."
  (interactive
   (list (dwell--read-epochs "Recordings to show" (dwell--await-epochs))))
  (let ((connection (dwell--ensure)))
    ;; What was wrong with other epochs may be wrong with these, and is worth saying again.
    (setf (dwell--said connection) nil)
    (dwell--execute connection "dwell.server.selectEpochs" (vector (vconcat epochs))
                    (lambda (_) (message "Dwell: showing %s" (string-join epochs " + "))))))

;;;###autoload
(defun dwell-new-epoch (name)
  "Ask the running daemon to start a new recording with NAME, which may be empty."
  (interactive "sName of the new recording (empty for none): ")
  (dwell--execute (dwell--ensure) "dwell.server.newEpoch"
                  (vector (if (string-empty-p name) (make-hash-table) (list :name name)))
                  (lambda (_) (message "Dwell: a new recording has begun"))))

;;;; Recording

;;;###autoload
(defun dwell-record (command &optional name)
  "Run COMMAND, a list of strings, and record it as a new recording, then show it.
With a prefix argument ask for the recording's NAME.  The command runs in
`default-directory'; `dwell-record-cancel' ends it.  \\<minibuffer-local-shell-command-map>\\[next-history-element]
brings the command of the latest recording."
  (interactive
   (list (split-string-shell-command
          (read-shell-command "Record the command: " nil 'dwell-record-history (dwell--recorded-before)))
         (dwell--read-name)))
  (unless command (user-error "Dwell: no command given"))
  (dwell--make-epoch "dwell.server.record" (concat "recording " (string-join command " "))
                     `( :command ,(vconcat command) :cwd ,(expand-file-name default-directory)
                        ,@(dwell--name-given name))))

;;;###autoload
(defun dwell-record-process (pids seconds &optional name)
  "Record the running processes PIDS, a list, for SECONDS as a new recording.
What was recorded by then is kept when `dwell-record-cancel' ends it
before.  With a prefix argument ask for the recording's NAME."
  (interactive (list (list (dwell--read-process "Record the process: "))
                     (read-number "For how many seconds: " 10)
                     (dwell--read-name)))
  (dwell--make-epoch "dwell.server.record"
                     (format "recording process %s" (mapconcat #'number-to-string pids ", "))
                     `(:pids ,(vconcat pids) :seconds ,seconds ,@(dwell--name-given name))))

;;;###autoload
(defun dwell-import-perf (file &optional name)
  "Import FILE, a perf.data, as a new recording and show it.
With a prefix argument ask for the recording's NAME."
  (interactive (list (read-file-name "Import perf.data: " nil nil t) (dwell--read-name)))
  (dwell--make-epoch "dwell.server.importPerf" (concat "importing " (file-name-nondirectory file))
                     `(:path ,(expand-file-name file) ,@(dwell--name-given name))))

;;;###autoload
(defun dwell-export-report (file)
  "Write FILE, an HTML page about the recordings that are shown.
The page needs no network and no other file."
  (interactive (list (read-file-name "Write the report to: " nil nil nil "dwell-report.html")))
  (let ((file (expand-file-name file)))
    (dwell--execute (dwell--ensure) "dwell.server.report" (vector (list :path file))
                    (lambda (_) (message "Dwell: wrote %s; `M-x browse-url-of-file' shows it" file)))))

(defun dwell--recorded-before ()
  "Return the command that the latest recording is of, to record it again, or nil."
  (let* ((connection (dwell--connection))
         (latest (and connection (car (last (append (dwell--known-epochs connection) nil)))))
         (scope (plist-get latest :scope))
         (program (car (split-string (or scope "")))))
    ;; Epochs of processes and of whole machines say in words what they are of.
    (and program (executable-find (expand-file-name program)) scope)))

(defun dwell--read-name ()
  "Ask for a recording's name if there is a prefix argument."
  (and current-prefix-arg (read-string "Name of the epoch: ")))

(defun dwell--name-given (name)
  "Return NAME as a parameter unless it is empty."
  (and name (not (string-empty-p name)) (list :name name)))

(defun dwell--read-process (prompt)
  "Let the user choose a process, asked by PROMPT; return its id."
  (let* ((result (dwell--await (dwell--ensure) :dwell/processes (make-hash-table)))
         (choices (mapcar (lambda (process)
                            (cons (format "%d %s" (plist-get process :pid) (plist-get process :name))
                                  process))
                          (plist-get result :processes)))
         (annotate (lambda (choice)
                     (when-let ((process (cdr (assoc choice choices))))
                       (format "  %s  %.1f s  %s" (plist-get process :user)
                               (plist-get process :cpuSeconds)
                               (truncate-string-to-width (plist-get process :command) 60 nil nil "…")))))
         (chosen (completing-read
                  prompt
                  (lambda (string predicate action)
                    (if (eq action 'metadata)
                        `(metadata (category . dwell-process) (display-sort-function . identity)
                                   (annotation-function . ,annotate))
                      (complete-with-action action choices string predicate))))))
    (if-let ((pid (and (string-match "\\`[0-9]+" chosen) (match-string 0 chosen))))
        (string-to-number pid)
      (user-error "Dwell: no process chosen"))))

(defun dwell--make-epoch (command text argument)
  "Have the server record by COMMAND with ARGUMENT; TEXT says what it does.
Its progress is shown, and it can be cancelled."
  (when dwell--recording
    (user-error "Dwell: a recording runs; `M-x dwell-record-cancel' ends it"))
  (let* ((connection (dwell--ensure))
         (token (format "dwell-record-%s" (random)))
         (recording (list :connection connection :token token :progress nil :cancel nil)))
    (setq dwell--recording recording)
    (plist-put recording :cancel
               (dwell--ask
                connection :workspace/executeCommand
                `(:command ,command :workDoneToken ,token :arguments [,argument])
                #'dwell--recorded #'dwell--not-recorded))
    (dwell--show-progress text)))

(defun dwell--not-recorded (problem)
  "Tell PROBLEM, why there is no new recording."
  (setq dwell--recording nil)
  (force-mode-line-update t)
  (message "Dwell: not recorded: %s" (plist-get problem :message)))

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
    (message "Dwell: made recording %s%s" (plist-get result :epoch)
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
    (dwell--show-progress "cancelling the recording")))

(defun dwell--progress (connection method params)
  "Show the progress PARAMS if METHOD says that of a recording at CONNECTION."
  (when (and (eq method '$/progress) dwell--recording
             (eq connection (plist-get dwell--recording :connection)))
    (let* ((value (plist-get params :value))
           (percentage (plist-get value :percentage)))
      ;; A server may report under our token or under one of its own.
      (unless (equal (plist-get value :kind) "end")
        (dwell--show-progress
         (string-join (delq nil (list (and percentage (format "%d%%" percentage))
                                      (or (plist-get value :message) (plist-get value :title))))
                      " "))))))

(defun dwell--show-progress (text)
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
