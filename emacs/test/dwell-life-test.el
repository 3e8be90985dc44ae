;;; dwell-life-test.el --- Tests of a connection's life, against a scripted server  -*- lexical-binding: t; -*-

;;; Commentary:

;; Servers that are missing, die, keep silent or err; and other clients in the same buffer.

;;; Code:

(require 'dwell-test-util)

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

(ert-deftest dwell-missing-server-is-said-once ()
  (let ((dwell-server-command '("/nonexistent/dwell-lsp")) (text-quoting-style 'grave))
    (should (equal (dwell-test-messages
                     (dwell-test-with-file "a.c" dwell-test-source
                       (should dwell-mode)
                       (should (equal (substring-no-properties (dwell--lighter)) " Dwell:off"))
                       (dwell-mode)
                       (insert "typing works")
                       (should-error (dwell-hot-procedures) :type 'user-error)))
                   '("Dwell: no program /nonexistent/dwell-lsp; see `dwell-server-command'")))))

(ert-deftest dwell-server-that-dies-is-said ()
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

(ert-deftest dwell-errors-are-said-once ()
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

(ert-deftest dwell-waiting-has-an-end ()
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

(ert-deftest dwell-announces-itself ()
  (let ((dwell-database "/tmp/db") (dwell-epochs '("latest~1" "latest")))
    (dwell-test-with-costs
      (let* ((params (plist-get (aref (dwell-test-ask :fake/messages) 0) :params))
             (experimental (plist-get (plist-get params :capabilities) :experimental)))
        (should (equal experimental '(:dwell (:profileDidChange t))))
        (should (equal (plist-get params :initializationOptions)
                       '(:database "/tmp/db" :epochs ["latest~1" "latest"] :hints "hot" :hotShare 0.01)))
        (should (equal (plist-get params :rootUri) (dwell--uri directory)))))))

(ert-deftest dwell-only-programs-sources ()
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

(if (not (require 'eglot nil t))
    (message "SKIPPED emacs-beside-eglot: this Emacs has no eglot")
  (ert-deftest dwell-beside-eglot ()
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
(declare-function lsp "lsp-mode")
(declare-function lsp-workspaces "lsp-mode")
(declare-function lsp-disconnect "lsp-mode")
(declare-function lsp-register-client "lsp-mode")
(declare-function lsp-activate-on "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")
(declare-function make-lsp-client "lsp-mode")

;; Debian 12's is compiled for Emacs 28 and does not run in Emacs 30.
(if (not (and (< emacs-major-version 30) (require 'lsp-mode nil t)))
    (message "SKIPPED emacs-beside-lsp-mode: no lsp-mode for this Emacs (Debian: elpa-lsp-mode)")
  (ert-deftest dwell-beside-lsp-mode ()
    "Two servers for one buffer: lsp-mode's and ours; neither disturbs the other."
    (let ((lsp-session-file (make-temp-name (expand-file-name "dwell-lsp-session" temporary-file-directory)))
          (lsp-auto-guess-root t) (lsp-warn-no-matched-clients nil) (lsp-enable-file-watchers nil)
          (lsp-enable-suggest-server-download nil) (lsp-keep-workspace-alive nil))
      (lsp-register-client
       (make-lsp-client :new-connection (lsp-stdio-connection #'dwell-test-fake-server)
                        :activation-fn (lsp-activate-on "c") :server-id 'dwell-fake :priority 99))
      (unwind-protect
          (dwell-test-with-costs
            (c-mode)
            (dwell-mode)
            (lsp)
            (dwell-test-until "lsp-mode" (lsp-workspaces))
            (dwell-test-until "overlays" (dwell-test-overlays))
            (goto-char (point-min))
            (insert "// both hear of this\n")
            (save-buffer)
            (dwell-test-until "costs of the saved text" (equal 3 (caar (dwell-test-shares))))
            (should (equal (buffer-string) (dwell-test-ask :fake/text (list :uri dwell--document))))
            (should (lsp-workspaces))
            (let ((inhibit-message t)) (lsp-disconnect)))
        (when (file-exists-p lsp-session-file) (delete-file lsp-session-file))))))

(provide 'dwell-life-test)
;;; dwell-life-test.el ends here
