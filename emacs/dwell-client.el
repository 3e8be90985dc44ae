;;; dwell-client.el --- Dwell's connection to its server  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: a buffer's project, the user's options.  Out: a connection to a running `dwell-lsp', requests
;; sent to it and their answers, what it notifies.  One connection for each project, or one for all
;; (`dwell-connection-scope'); it knows nothing of overlays, lists or listings.
;;
;; Nothing here waits for the server except `dwell--await', which only commands use that a user
;; called and that cannot go on without the answer.

;;; Code:

(require 'cl-lib)
(require 'eieio)
(require 'jsonrpc)
(require 'project)
(require 'subr-x)
(require 'url-parse)
(require 'url-util)

(defgroup dwell nil
  "What each source line costs, where it stalls and why."
  :group 'tools
  :prefix "dwell-"
  :link '(emacs-commentary-link "dwell"))

(defcustom dwell-server-command nil
  "Server program and its arguments.
Nil means to look for it: `dwell-lsp' on variable `exec-path', else,
beside a source checkout that this file lies in, the server that was
built there, run by node."
  :type '(choice (const :tag "Look for it" nil)
                 (repeat :tag "Program and arguments" string)))

(defcustom dwell-connection-scope 'project
  "Whether each project has a server of its own.
Servers of different projects can show different recordings."
  :type '(choice (const :tag "One for each project" project)
                 (const :tag "One for all" global)))

(defcustom dwell-database nil
  "Folder of the profile database, or s3://BUCKET/PREFIX.
Nil leaves it to the server: $DWELL_DB, else $XDG_DATA_HOME/dwell."
  :type '(choice (const :tag "The server's default" nil) directory
                 (string :tag "Place in a bucket")))

(defcustom dwell-epochs '("latest")
  "Recordings shown at first, merged: ids, names, `latest' or `latest~N'."
  :type '(repeat string))

(defcustom dwell-program nil
  "The `dwell' program, which records.
Nil leaves it to the server: beside itself, else on PATH."
  :type '(choice (const :tag "The server finds it" nil) (file :must-match t)))

(defcustom dwell-hints 'hot
  "Which lines show their cost."
  :type '(choice (const :tag "None" off)
                 (const :tag "Those of at least `dwell-hot-percent'" hot)
                 (const :tag "All with samples" all)))

(defcustom dwell-hot-percent 1
  "Least part of the recording's time for a line to be hot, in percent."
  :type '(restricted-sexp :match-alternatives (dwell--percent-p)))

(defcustom dwell-diagnostics nil
  "Whether severe avoidable stalls are among the notes of Flymake.
Takes effect when `dwell-mode' or a server is started."
  :type 'boolean)

(defcustom dwell-source-map nil
  "Where sources lie that were built elsewhere: folders, as built and here.
A folder as built is what the debug information spells, after
`-ffile-prefix-map' or in a container say; the longest that fits counts."
  :type '(alist :key-type (string :tag "As built") :value-type (directory :tag "Here")))

(defcustom dwell-debug-directories nil
  "Folders with separate debug files, beside /usr/lib/debug."
  :type '(repeat directory))

(defcustom dwell-request-timeout 20
  "Seconds that a command waits for the server's answer."
  :type 'number)

(defun dwell--percent-p (value)
  "Return non-nil if VALUE is a percentage, 0 to 100."
  (and (numberp value) (<= 0 value 100)))

(defclass dwell-connection (jsonrpc-process-connection)
  ((key :initarg :key :accessor dwell--key
        :documentation "Root folder of its project, or `global'.")
   (server :initform nil :accessor dwell--process
           :documentation "The server's process.")
   (state :initform 'starting :accessor dwell--state
          :documentation "`starting', `ready', `stopping' or `stopped'.")
   (waiting :initform nil :accessor dwell--waiting
            :documentation "Functions to call when it is ready, last first.")
   (capabilities :initform nil :accessor dwell--capabilities
                 :documentation "What the server can do.")
   (started :initform (float-time) :accessor dwell--started
            :documentation "When, in seconds since 1970.")
   (request-id :initform nil :accessor dwell--request-id
               :documentation "Id of the request that was sent last.")
   (selected :initform nil :accessor dwell--selected
             :documentation "Labels of the recordings shown.")
   (epochs :initform nil :accessor dwell--known-epochs
           :documentation "The server's recordings, as of its last answer.")
   (baseline :initform nil :accessor dwell--baseline
             :documentation "Labels of the recordings that they are compared with.")
   (compared :initform nil :accessor dwell--compared
             :documentation "The same when files were asked for last.")
   (said :initform nil :accessor dwell--said
         :documentation "Problems that were shown to the user."))
  :documentation "A connection to a Dwell server.")

(defvar dwell--connections (make-hash-table :test #'equal)
  "Connection by key; a stopped one stays until it is restarted.")

(defvar dwell-notification-functions nil
  "Abnormal hook for notifications: connection, method (a symbol), parameters.")

(defvar dwell-ready-functions nil
  "Abnormal hook for a server that is ready; its argument is the connection.")

(defvar dwell-selected-functions nil
  "Abnormal hook: it is known which recordings are shown; argument: the connection.")

(defvar dwell-stopped-functions nil
  "Abnormal hook for a server that stopped; its argument is the connection.")

(defvar-local dwell--buffer-key nil
  "Key of this buffer's connection, once it is known.")

;;;; Files and their names

(defun dwell--uri (file)
  "Return the URI of FILE."
  (url-recreate-url (url-parse-make-urlobj "file" nil nil "" nil (url-hexify-string (file-truename file) url-path-allowed-chars)
                                           nil nil t)))

(defun dwell--file (uri)
  "Return the name of the file that URI denotes, or nil if it denotes none."
  (let ((url (url-generic-parse-url uri)))
    (when (equal (url-type url) "file")
      (decode-coding-string (url-unhex-string (url-filename url)) 'utf-8))))

(defun dwell--buffer-key ()
  "Return the key of this buffer's connection."
  (or dwell--buffer-key
      (setq dwell--buffer-key
            (or (and (eq dwell-connection-scope 'project)
                     (not (file-remote-p default-directory))
                     (when-let ((project (project-current)))
                       (expand-file-name (file-name-as-directory (project-root project)))))
                'global))))

;;;; Finding the server

(defconst dwell--directory
  (file-name-directory (or load-file-name buffer-file-name default-directory))
  "Where this file lies.")

(defun dwell--find-server ()
  "Return the command of the server, a list, or signal what is missing."
  (or (dwell--chosen-server)
      (when-let ((program (executable-find "dwell-lsp"))) (list program "--stdio"))
      (when-let ((script (dwell--built-server)))
        (list (or (executable-find "node")
                  (user-error "Dwell: %s needs node, which is not on PATH" script))
              script "--stdio"))
      (user-error
       "Dwell: no server: dwell-lsp is not on PATH and none is built here; see `dwell-server-command'")))

(defun dwell--chosen-server ()
  "Return the user's `dwell-server-command' if there is one."
  (when dwell-server-command
    (unless (executable-find (car dwell-server-command))
      (user-error "Dwell: no program %s; see `dwell-server-command'" (car dwell-server-command)))
    dwell-server-command))

(defun dwell--built-server ()
  "Return the server's script in the checkout that this file lies in, or nil."
  (seq-find #'file-readable-p
            (mapcar (lambda (script) (expand-file-name script dwell--directory))
                    '("../vscode-extension/dist/server.js" "../lsp-server/dist/server.js"))))

;;;; Starting

(defun dwell--connection ()
  "Return this buffer's connection if it has one that did not stop."
  (when-let ((connection (gethash (dwell--buffer-key) dwell--connections)))
    (and (memq (dwell--state connection) '(starting ready)) connection)))

(defun dwell--ensure ()
  "Return this buffer's connection; start the server if it is the first."
  (or (dwell--connection)
      (dwell--start (dwell--buffer-key))))

(defvar dwell--started-count 0
  "How many servers were started; jsonrpc.el's buffers go by name.")

(defun dwell--start (key)
  "Start a server for KEY and return its connection, which is not ready yet."
  (let* ((default-directory (if (stringp key) key (expand-file-name "~/")))
         (command (dwell--find-server))
         (name (format "dwell-%d" (cl-incf dwell--started-count)))
         (process nil)
         (connection
          (condition-case err
              (apply #'make-instance 'dwell-connection
                     :name name :key key
                     :process (lambda () (setq process (dwell--spawn command name)))
                     :request-dispatcher #'dwell--answer
                     :notification-dispatcher #'dwell--notified
                     :on-shutdown #'dwell--shut-down
                     (dwell--no-event-log))
            (file-error (user-error "Dwell: cannot run %s: %s" (car command) (error-message-string err))))))
    (when-let ((old (gethash key dwell--connections)))
      (run-at-time 0 nil #'dwell--forget-buffers old)) ; a caller may be walking the buffers now
    (setf (dwell--process connection) process)
    (puthash key connection dwell--connections)
    (condition-case err
        (jsonrpc-async-request
         connection :initialize (dwell--initialize-params key)
         :timeout nil
         :success-fn (lambda (result) (dwell--initialized connection result))
         :error-fn (lambda (problem) (dwell--complain connection problem)))
      ;; The server ended at once; its standard error says why.
      (error (user-error "Dwell: cannot talk to %s: %s" (car command) (error-message-string err))))
    connection))

(defun dwell--spawn (command name)
  "Start COMMAND, a list, as NAME and return its process."
  (make-process :name name :command command :connection-type 'pipe
                :coding 'utf-8-emacs-unix :noquery t
                ;; jsonrpc.el looks for standard error in a buffer of just this name.
                :stderr (get-buffer-create (format "*%s stderr*" name))))

(defun dwell--no-event-log ()
  "Return the arguments that keep jsonrpc.el from logging every message.
Its log pretty-prints what it is given, which is slow for whole files."
  (if (slot-exists-p 'dwell-connection '-events-buffer-config)
      '(:events-buffer-config (:size 0 :format full))
    '(:events-buffer-scrollback-size 0)))

(defun dwell--initialize-params (key)
  "Return the parameters of `initialize' for KEY."
  (let ((root (and (stringp key) (dwell--uri key))))
    `( :processId ,(emacs-pid)
       :clientInfo (:name "dwell.el" :version "0.1.0")
       :rootUri ,root
       :workspaceFolders ,(and root (vector (list :uri root :name (file-name-nondirectory
                                                                   (directory-file-name key)))))
       :initializationOptions ,(dwell--server-options)
       :capabilities
       ( :general (:positionEncodings ["utf-16"])
         :window (:workDoneProgress t)
         :workspace (:workspaceFolders t :configuration t)
         :textDocument ( :synchronization (:didSave t)
                         :publishDiagnostics (:relatedInformation t)
                         :hover (:contentFormat ["plaintext"]))
         :experimental (:dwell (:profileDidChange t :commandLinks t :drawsLineEnds t :callsDidChange t))))))

(defun dwell--server-options ()
  "Return the user's options as the server knows them."
  `( ,@(and dwell-database (list :database (if (string-prefix-p "s3:" dwell-database)
                                      dwell-database
                                    (expand-file-name dwell-database))))
     :epochs ,(vconcat dwell-epochs)
     :hints ,(symbol-name dwell-hints)
     :hotShare ,(/ dwell-hot-percent 100.0)
     :diagnostics ,(if dwell-diagnostics t :json-false)
     ,@(and dwell-program (list :dwellPath (expand-file-name dwell-program)))
     ,@(and dwell-source-map
            (list :sourceMap (cl-loop for (built . here) in dwell-source-map
                                      append (list (intern (concat ":" built)) (expand-file-name here)))))
     ,@(and dwell-debug-directories
            (list :debugDirs (vconcat (mapcar #'expand-file-name dwell-debug-directories))))))

(defun dwell--initialized (connection result)
  "Make CONNECTION ready with RESULT, the server's answer, and send what waits."
  (setf (dwell--capabilities connection) (plist-get result :capabilities)
        (dwell--state connection) 'ready)
  (jsonrpc-notify connection :initialized (make-hash-table))
  (let ((waiting (nreverse (dwell--waiting connection))))
    (setf (dwell--waiting connection) nil)
    (mapc #'funcall waiting))
  (run-hook-with-args 'dwell-ready-functions connection))

(defun dwell--when-ready (connection function)
  "Call FUNCTION once CONNECTION is ready, now if it is."
  (pcase (dwell--state connection)
    ('ready (funcall function))
    ('starting (push function (dwell--waiting connection)))))

;;;; Asking

(cl-defmethod jsonrpc-connection-send :before ((connection dwell-connection) &rest message)
  "Note in CONNECTION the id of MESSAGE if it is a request, for cancelling it."
  (when (and (plist-get message :id) (plist-get message :method))
    (setf (dwell--request-id connection) (plist-get message :id))))

(defun dwell--ask (connection method params success &optional failure)
  "Send METHOD with PARAMS to CONNECTION, then call SUCCESS with the result.
On an error call FAILURE with it, or show it to the user, once.  Return a
function that cancels the request."
  (let (id)
    (dwell--when-ready
     connection
     (lambda ()
       (jsonrpc-async-request
        connection method params :timeout nil :success-fn success
        :error-fn (or failure (lambda (problem) (dwell--complain connection problem))))
       (setq id (dwell--request-id connection))))
    (lambda ()
      (when (and id (jsonrpc-running-p connection))
        (jsonrpc-notify connection :$/cancelRequest (list :id id))))))

(defun dwell--request (connection method params success &optional failure)
  "Like `dwell--ask' with CONNECTION, METHOD and PARAMS, for this buffer.
SUCCESS and FAILURE run in it, and not at all once it was killed."
  (let ((buffer (current-buffer)))
    (cl-flet ((here (function)
                (lambda (value)
                  (when (buffer-live-p buffer)
                    (with-current-buffer buffer (funcall function value))))))
      (dwell--ask connection method params (here success) (and failure (here failure))))))

(defun dwell--notify (connection method params)
  "Send the notification METHOD with PARAMS once CONNECTION is ready."
  (dwell--when-ready connection (lambda () (jsonrpc-notify connection method params))))

(defun dwell--await (connection method params)
  "Return the result of METHOD with PARAMS; wait for it.
For commands alone.  `keyboard-quit' and `dwell-request-timeout' end
the wait and cancel the request at CONNECTION."
  (let* ((answer nil)
         (end (+ (float-time) dwell-request-timeout))
         (cancel (dwell--ask connection method params
                             (lambda (result) (setq answer (list 'done result)))
                             (lambda (problem) (setq answer (list 'failed problem))))))
    (unwind-protect
        (while (not (or answer (> (float-time) end)
                        (memq (dwell--state connection) '(stopping stopped))))
          (accept-process-output nil 0.05))
      (unless answer (funcall cancel)))
    (pcase answer
      (`(done ,result) result)
      (`(failed ,problem) (user-error "Dwell: %s" (plist-get problem :message)))
      (_ (user-error "Dwell: the server did not answer in %s s" dwell-request-timeout)))))

(defun dwell--execute (connection command arguments success)
  "Have CONNECTION's server execute COMMAND with ARGUMENTS, a vector.
Call SUCCESS with the result."
  (dwell--ask connection :workspace/executeCommand
              (list :command command :arguments arguments) success))

;;;; When

(defun dwell--soon (delay function &rest arguments)
  "Call FUNCTION with ARGUMENTS once Emacs has been idle for DELAY seconds.
Return the timer."
  ;; An idle timer set while Emacs is idle already would wait for the next key.
  (apply (if (or noninteractive (current-idle-time)) #'run-with-timer #'run-with-idle-timer)
         delay nil function arguments))

;;;; Messages

(defun dwell--complain (connection problem)
  "Show PROBLEM, an error of CONNECTION's server, to the user.
A request that was cancelled or overtaken is no problem."
  (unless (dwell--passing-p problem)
    (dwell--say connection (plist-get problem :message))))

(defun dwell--passing-p (problem)
  "Return non-nil if PROBLEM only says that the request is not wanted any more."
  (memq (plist-get problem :code) '(-1 -32800 -32801 -32802)))

(defun dwell--say (connection text)
  "Show TEXT to the user, once for CONNECTION."
  (unless (member text (dwell--said connection))
    (push text (dwell--said connection))
    (message "Dwell: %s" text)))

;;;; Requests and notifications of the server

(defun dwell--answer (_connection method params)
  "Answer the server's request METHOD with PARAMS."
  (pcase method
    ('workspace/configuration
     (vconcat (mapcar (lambda (item)
                        (and (equal (plist-get item :section) "dwell") (dwell--server-options)))
                      (plist-get params :items))))
    ((or 'window/workDoneProgress/create 'client/registerCapability 'client/unregisterCapability
         'workspace/inlayHint/refresh 'workspace/codeLens/refresh 'window/showMessageRequest)
     nil)
    (_ (jsonrpc-error :code -32601 :message (format "dwell.el knows no %s" method)))))

(defun dwell--notified (connection method params)
  "Pass on the notification METHOD with PARAMS of CONNECTION's server."
  ;; An error here would end in jsonrpc.el's process filter.
  (with-demoted-errors "Dwell: %S"
    (if (eq method 'window/showMessage)
        (dwell--say connection (plist-get params :message))
      (run-hook-with-args 'dwell-notification-functions connection method params))))

;;;; Ending

(defconst dwell--restart-after 60
  "Seconds that a server must have run to be restarted when it dies.")

(defun dwell--shut-down (connection)
  "Note that CONNECTION's server is gone; restart it if it died."
  (let ((died (not (eq (dwell--state connection) 'stopping)))
        (key (dwell--key connection)))
    (setf (dwell--state connection) 'stopped)
    (run-hook-with-args 'dwell-stopped-functions connection)
    (when (and died (eq connection (gethash key dwell--connections)))
      (if (> (- (float-time) (dwell--started connection)) dwell--restart-after)
          (progn (message "Dwell: the server died%s; it is restarted" (dwell--last-words connection))
                 (run-with-timer 1 nil #'dwell--restart key))
        (message "Dwell: the server died%s; `M-x dwell-restart' starts it again"
                 (dwell--last-words connection))))))

(defun dwell--last-words (connection)
  "Return the last line that CONNECTION's server wrote on standard error."
  (let ((buffer (jsonrpc-stderr-buffer connection)))
    (if-let ((line (and (buffer-live-p buffer)
                        (with-current-buffer buffer
                          (car (last (seq-remove
                                      (lambda (line)
                                        (string-match-p "\\`\\(?:Process dwell-.* stderr .*\\)?\\'" line))
                                      (split-string (buffer-string) "\n"))))))))
        (format " (%s)" (truncate-string-to-width (string-trim line) 120 nil nil "…"))
      "")))

(defun dwell--restart (key)
  "Start the server of KEY again unless it runs."
  (let ((old (gethash key dwell--connections)))
    (unless (and old (memq (dwell--state old) '(starting ready)))
      (condition-case err
          (dwell--start key)
        (user-error (message "%s" (error-message-string err)))))))

(defun dwell--stop (connection)
  "Stop CONNECTION's server in good order, without waiting for it."
  (when (memq (dwell--state connection) '(starting ready))
    (setf (dwell--state connection) 'stopping)
    (cl-flet ((leave (&rest _)
                (when (jsonrpc-running-p connection)
                  (jsonrpc-notify connection :exit nil))))
      (jsonrpc-async-request connection :shutdown nil :timeout nil
                             :success-fn #'leave :error-fn #'leave))
    ;; End a server that does not answer as well.
    (run-with-timer 2 nil (lambda ()
                            (when (jsonrpc-running-p connection)
                              (delete-process (dwell--process connection)))))))

(defun dwell--forget-buffers (connection)
  "Kill the buffers of CONNECTION, which another one has replaced."
  (let ((name (jsonrpc-name connection)))
    (dolist (format '(" *%s output*" " *%s stderr*" "*%s events*"))
      (when-let ((buffer (get-buffer (format format name))))
        (unless (get-buffer-process buffer) (kill-buffer buffer))))))

(defun dwell-server-log ()
  "Show what this project's server wrote on standard error."
  (interactive)
  (let* ((connection (gethash (dwell--buffer-key) dwell--connections))
         (buffer (and connection (jsonrpc-stderr-buffer connection))))
    (unless (buffer-live-p buffer) (user-error "Dwell: no server was started for this buffer"))
    (display-buffer buffer)))

;;;###autoload
(defun dwell-restart ()
  "Stop this project's Dwell server if it runs, and start it again."
  (interactive)
  (let ((key (dwell--buffer-key)))
    (when-let ((old (gethash key dwell--connections)))
      (dwell--stop old))
    (dwell--start key)))

(defun dwell-shutdown ()
  "Stop this project's Dwell server."
  (interactive)
  (if-let ((connection (dwell--connection)))
      (dwell--stop connection)
    (user-error "Dwell: no server runs for this buffer")))

(provide 'dwell-client)
;;; dwell-client.el ends here
