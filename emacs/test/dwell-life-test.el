;;; dwell-life-test.el --- Tests of a connection's life, against a scripted server  -*- lexical-binding: t; -*-

;;; Commentary:

;; Servers that are missing, die, keep silent or err; and other clients in the same buffer.

;;; Code:

(require 'dwell-test-util)
(require 'flymake)

(ert-deftest dwell-one-server-for-each-project-or-one-for-all ()
  (dolist (row '((project . 2) (global . 1)))
    (let ((dwell-connection-scope (car row)))
      (dwell-test-with-file "a.c" dwell-test-source
        (let ((count 0))
          (dwell-test-with-file "b.c" dwell-test-source
            (dwell-test-until "overlays" (dwell-test-overlays))
            (setq count (hash-table-count dwell--connections))
            ;; what is said over one connection is not heard on the other
            (dotimes (_ 3)
              (maphash (lambda (_ connection) (dwell--await connection :dwell/epochs (make-hash-table)))
                       dwell--connections)))
          (should (= count (cdr row))))))))

(ert-deftest dwell-missing-server-is-reported-once ()
  (let ((dwell-server-command '("/nonexistent/dwell-lsp")) (text-quoting-style 'grave))
    (should (equal (dwell-test-messages
                     (dwell-test-with-file "a.c" dwell-test-source
                       (should dwell-mode)
                       (should (equal (substring-no-properties (dwell--lighter)) " Dwell:off"))
                       (dwell-mode)
                       (insert "typing works")
                       (should-error (dwell-hot-procedures) :type 'user-error)))
                   '("Dwell: no program /nonexistent/dwell-lsp; see `dwell-server-command'")))))

(ert-deftest dwell-death-of-the-server-is-reported ()
  (dwell-test-with-costs
    (let ((connection (dwell--connection)))
      (let ((said (dwell-test-messages
                    (dwell--notify connection :fake/die nil)
                    (dwell-test-until "its death" (eq 'stopped (dwell--state connection))))))
        (should (member "Dwell: the server died (the fake server was told to die); `M-x dwell-restart' starts it again" said)))
      (should-not (dwell-test-overlays))
      (should (equal (substring-no-properties (dwell--lighter)) " Dwell:off"))
      (insert "// typing works\n")
      (set-buffer-modified-p nil)
      (dwell-restart)
      (dwell-test-until "costs again" (dwell-test-overlays)))))

(ert-deftest dwell-server-that-ran-long-is-restarted ()
  (dwell-test-with-costs
    (let ((connection (dwell--connection)))
      (setf (dwell--started connection) 0)
      (dwell--notify connection :fake/die nil)
      (dwell-test-until "its death" (not (dwell-test-overlays)))
      (dwell-test-until "costs again" (dwell-test-overlays))
      (should-not (eq connection (dwell--connection))))))

(ert-deftest dwell-shutdown-is-quiet ()
  (dwell-test-with-costs
    (let ((connection (dwell--connection)))
      (dwell-shutdown)
      (dwell-test-until "its end" (eq 'stopped (dwell--state connection)))
      (should (= 0 (process-exit-status (jsonrpc--process connection)))))))

(ert-deftest dwell-errors-are-reported-once ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:error (:dwell/fileCosts (:code -32001 :message "no database at /x"))))
    (should (equal (dwell-test-messages
                     (dotimes (_ 3)
                       (dwell--refresh)
                       (dwell-test-until "the answer" (null dwell--fetching))))
                   '("Dwell: no database at /x")))
    (should-not (dwell-test-overlays))
    (dwell-test-ask :fake/set '(:error (:dwell/fileCosts (:code -32801 :message "content modified"))))
    (should-not (dwell-test-messages
                  (dwell--refresh)
                  (dwell-test-until "the answer" (null dwell--fetching))))))

(ert-deftest dwell-waiting-has-a-limit ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:delayMs 2000))
    (let ((dwell-request-timeout 0.2))
      (should-error (dwell--await (dwell--connection) :dwell/fileCosts (list :textDocument (list :uri dwell--document)))
                    :type 'user-error))
    (dwell-test-settle)
    (should (seq-find (lambda (message) (equal (plist-get message :method) "$/cancelRequest"))
                      (dwell-test-ask :fake/messages)))))

(ert-deftest dwell-answers-the-server ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/request '(:method "workspace/configuration" :params (:items [(:section "dwell") (:section "other")])))
    (dwell-test-ask :fake/request '(:method "workspace/unheard" :params nil))
    (dwell-test-settle)
    (let ((answers (seq-filter (lambda (message) (and (null (plist-get message :method))
                                                      (or (plist-get message :result) (plist-get message :error))))
                               (dwell-test-ask :fake/messages))))
      (should (equal (plist-get (aref (plist-get (car answers) :result) 0) :hints) "hot"))
      (should (equal (plist-get (plist-get (cadr answers) :error) :code) -32601)))))

(ert-deftest dwell-client-announces-its-capabilities ()
  (let ((dwell-database "/tmp/db") (dwell-epochs '("latest~1" "latest")) (dwell-diagnostics t)
        (dwell-source-map '(("/build/one" . "/src/one"))) (dwell-debug-directories '("/dbg")))
    (dwell-test-with-costs
      (let* ((params (plist-get (aref (dwell-test-ask :fake/messages) 0) :params))
             (experimental (plist-get (plist-get params :capabilities) :experimental)))
        (should (equal experimental '(:dwell (:profileDidChange t :commandLinks t :drawsLineEnds t :callsDidChange t))))
        (should (equal (plist-get params :initializationOptions)
                       '(:database "/tmp/db" :epochs ["latest~1" "latest"] :hints "hot" :hotShare 0.01 :diagnostics t
                                   :sourceMap (:/build/one "/src/one") :debugDirs ["/dbg"])))
        (should (equal (plist-get params :rootUri) (dwell--uri directory)))))))

(ert-deftest dwell-only-in-source-files ()
  (with-temp-buffer
    (emacs-lisp-mode)
    (should-error (dwell-mode) :type 'user-error))
  (dwell-test-with-file "a.c" dwell-test-source
    (dwell-mode -1)
    (unwind-protect
        (progn (global-dwell-mode)
               (should dwell-mode)
               (text-mode)
               (should-not dwell-mode)
               (dwell-mode) ; who asks for it gets it
               (should dwell-mode))
      (global-dwell-mode -1))
    (should-not dwell-mode)))

(defvar eglot-server-programs)
(defvar eglot-sync-connect)
(declare-function eglot "eglot")
(declare-function eglot--guess-contact "eglot")
(declare-function eglot-current-server "eglot")
(declare-function eglot-shutdown "eglot")

;; Debian 12's is for Emacs 28; later ones have their own.
(when (>= emacs-major-version 29)
  (setq load-path (seq-remove (lambda (folder) (string-match-p "/elpa/eglot-" folder)) load-path)))
(if (not (require 'eglot nil t))
    (message "SKIPPED emacs-beside-eglot: this Emacs has no eglot")
  (ert-deftest dwell-works-beside-eglot ()
    "Two servers for one buffer: eglot's and ours; neither disturbs the other."
    (dwell-test-with-costs
      (let ((eglot-server-programs (list (cons 'c-mode (dwell-test-fake-server))))
            (eglot-sync-connect 10))
        (c-mode)
        (dwell-mode)
        (apply #'eglot (eglot--guess-contact))
        (dwell-test-until "overlays" (dwell-test-overlays))
        (goto-char (point-min))
        (insert "// both hear of this\n")
        (save-buffer)
        (dwell-test-until "eglot" (eglot-current-server))
        (dwell-test-until "costs of the saved text" (equal 3 (caar (dwell-test-shares))))
        (should (equal (buffer-string) (dwell-test-ask :fake/text (list :uri dwell--document))))
        (let ((inhibit-message t)) (eglot-shutdown (eglot-current-server)))))))

(defvar lsp-session-file)
(defvar lsp-auto-guess-root)
(defvar lsp-warn-no-matched-clients)
(defvar lsp-enable-file-watchers)
(defvar lsp-enable-suggest-server-download)
(defvar lsp-keep-workspace-alive)
(defvar lsp-diagnostics-provider)
(declare-function lsp "lsp-mode")
(declare-function lsp-workspaces "lsp-mode")
(declare-function lsp--workspace-status "lsp-mode")
(declare-function lsp-disconnect "lsp-mode")
(declare-function lsp-register-client "lsp-mode")
(declare-function lsp-activate-on "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")
(declare-function make-lsp-client "lsp-mode")

;; Debian 12's is compiled for Emacs 28 and does not run in Emacs 30. It counts on its autoloads, as a user has them;
;; -Q leaves them out.
(if (not (and (< emacs-major-version 30) (require 'lsp-mode nil t) (load "lsp-mode-autoloads" t t)))
    (message "SKIPPED emacs-beside-lsp-mode: no lsp-mode for this Emacs (Debian: elpa-lsp-mode)")
  (ert-deftest dwell-works-beside-lsp-mode ()
    "Two servers for one buffer: lsp-mode's and ours; neither disturbs the other."
    (let ((lsp-session-file (make-temp-name (expand-file-name "dwell-lsp-session" temporary-file-directory)))
          (lsp-auto-guess-root t) (lsp-warn-no-matched-clients nil) (lsp-enable-file-watchers nil)
          (lsp-enable-suggest-server-download nil) (lsp-keep-workspace-alive nil)
          ;; Its Flymake would start compilers, which on a busy machine report to a buffer that wants none by then.
          (lsp-diagnostics-provider :none))
      (lsp-register-client
       (make-lsp-client :new-connection (lsp-stdio-connection #'dwell-test-fake-server)
                        :activation-fn (lsp-activate-on "c") :server-id 'dwell-fake :priority 99))
      (unwind-protect
          (dwell-test-with-costs
            (c-mode)
            (dwell-mode)
            (lsp)
            (dwell-test-until "lsp-mode"
              (and (lsp-workspaces) (eq (lsp--workspace-status (car (lsp-workspaces))) 'initialized)))
            (dwell-test-until "overlays" (dwell-test-overlays))
            (goto-char (point-min))
            (insert "// both hear of this\n")
            (save-buffer)
            (dwell-test-until "costs of the saved text" (equal 3 (caar (dwell-test-shares))))
            (should (equal (buffer-string) (dwell-test-ask :fake/text (list :uri dwell--document))))
            (should (lsp-workspaces))
            (let ((inhibit-message t)) (lsp-disconnect)))
        (when (file-exists-p lsp-session-file) (delete-file lsp-session-file))))))

;;;; Flymake

(defun dwell-test-notes ()
  "Return (LINE . TEXT) of each note of Flymake, lines from 1."
  (mapcar (lambda (note) (cons (line-number-at-pos (flymake-diagnostic-beg note) t) (flymake-diagnostic-text note)))
          (flymake-diagnostics)))

(ert-deftest dwell-severe-stalls-are-notes-of-flymake ()
  (let ((dwell-diagnostics t))
    (dwell-test-with-costs
      (cl-flet ((publish (uri &rest diagnostics)
                  (dwell-test-ask :fake/notify (list :method "textDocument/publishDiagnostics"
                                                     :params (list :uri uri :diagnostics (vconcat diagnostics)))))
                (stall (line from to)
                  (list :range (list :start (list :line line :character from) :end (list :line line :character to))
                        :severity 3 :source "dwell" :code "d-cache-miss" :message "D-cache miss: up to 90%"
                        :relatedInformation
                        (vector (list :location (list :uri dwell--document :range '(:start (:line 1 :character 0)
                                                                                    :end (:line 1 :character 0)))
                                      :message "culprit: D-cache miss")))))
        (should (memq #'dwell-flymake flymake-diagnostic-functions))
        (setq-local flymake-diagnostic-functions '(dwell-flymake))
        (flymake-mode)
        (flymake-start)
        (publish "file:///other.c" (stall 0 0 1))
        (publish dwell--document (stall 2 2 9) (stall 99 0 1))
        (should (equal (dwell-test-until "the note" (dwell-test-notes))
                       '((3 . "Dwell: D-cache miss: up to 90% (culprit: D-cache miss at a.c:2)"))))
        (publish dwell--document)
        (dwell-test-until "its end" (null (dwell-test-notes)))
        (publish dwell--document (stall 2 2 9))
        (dwell-test-until "the note again" (dwell-test-notes))
        (goto-char (point-min))
        (insert "\n")
        (flymake-start) ; as it does after a while; what the server said was of another text
        (should-not (dwell-test-notes))
        (set-buffer-modified-p nil)
        (dwell-mode -1)
        (should-not (memq #'dwell-flymake flymake-diagnostic-functions))))))

(provide 'dwell-life-test)
;;; dwell-life-test.el ends here
