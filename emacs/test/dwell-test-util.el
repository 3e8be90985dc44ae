;;; dwell-test-util.el --- What Dwell's tests share  -*- lexical-binding: t; -*-

;;; Code:

(require 'ert)
(require 'dwell)

;; Tests redefine `message' for a moment: no need to compile a trampoline for seconds.
(defvar native-comp-enable-subr-trampolines)
(defvar native-comp-jit-compilation)
(setq native-comp-enable-subr-trampolines nil
      native-comp-jit-compilation nil)

(defconst dwell-test-directory (file-name-directory (or load-file-name buffer-file-name))
  "Where the tests lie.")

(defun dwell-test-fake-server ()
  "Return the command of the server that plays a script."
  (list "node" (expand-file-name "fake-server.mjs" dwell-test-directory)))

(defmacro dwell-test-until (what &rest body)
  "Wait till BODY is non-nil and return its value; WHAT names it in a failure."
  (declare (indent 1))
  `(let ((end (+ (float-time) 60)) value)
     (while (not (or (setq value (progn ,@body)) (> (float-time) end)))
       (accept-process-output nil 0.02))
     (or value (ert-fail (list "waited in vain for" ,what)))))

(defun dwell-test-overlays (&optional kind)
  "Return (LINE . TEXT) of each overlay of KIND, `line' by default, lines from 1."
  (mapcar (lambda (overlay)
            (cons (line-number-at-pos (overlay-start overlay) t)
                  (string-trim (substring-no-properties
                                (or (overlay-get overlay (if (eq kind 'procedure) 'before-string 'after-string))
                                    "")))))
          (dwell--overlays nil nil (or kind 'line))))

(defun dwell-test-shares ()
  "Return (LINE . SHARE-AND-STATE) of each line's overlay, lines from 1."
  (mapcar (pcase-lambda (`(,line . ,text))
            (cons line (if (string-match "\\(edited · was \\)?[0-9.<]+ %" text) (match-string 0 text) text)))
          (dwell-test-overlays)))

(defun dwell-test-ask (method &optional params)
  "Return the answer of this buffer's server to METHOD with PARAMS."
  (dwell--await (dwell--ensure) method (or params (make-hash-table))))

(defun dwell-test-settle ()
  "Wait until the server has answered all that was sent so far."
  (dwell-test-ask :dwell/epochs))

(defmacro dwell-test-messages (&rest body)
  "Return what BODY says in the echo area, as a list."
  (declare (indent 0))
  `(let (said)
     (cl-letf (((symbol-function 'message)
                (lambda (format &rest args) (when format (push (apply #'format format args) said)))))
       ,@body)
     (nreverse said)))

(defun dwell-test-stop-servers ()
  "Stop all servers and forget them."
  (maphash (lambda (_ connection)
             (setf (dwell--state connection) 'stopping)
             (when (jsonrpc-running-p connection)
               (delete-process (jsonrpc--process connection))))
           dwell--connections)
  (accept-process-output nil 0.05)
  (clrhash dwell--connections)
  (setq dwell--recording nil dwell--missing-said nil))

(defmacro dwell-test-with-file (name text &rest body)
  "Run BODY in a buffer of a file NAME with TEXT in a project of its own.
The buffer is in the selected window and `dwell-mode' is on."
  (declare (indent 2))
  `(let* ((directory (file-name-as-directory (make-temp-file "dwell-test" t)))
          (file (expand-file-name ,name directory))
          (dwell-server-command (or dwell-server-command (dwell-test-fake-server)))
          (create-lockfiles nil) (make-backup-files nil)
          (truncated (default-value 'truncate-lines)))
     (setq-default truncate-lines t) ; costs are whole, whatever the window's width
     (make-directory (expand-file-name ".git" directory))
     (let ((coding-system-for-write 'utf-8-unix)) (write-region ,text nil file nil 'silent))
     (unwind-protect
         (save-window-excursion
           (with-current-buffer (find-file-noselect file)
             (switch-to-buffer (current-buffer))
             (unwind-protect (progn (dwell-mode) ,@body)
               (when (buffer-live-p (get-file-buffer file))
                 (with-current-buffer (get-file-buffer file)
                   (set-buffer-modified-p nil)
                   (kill-buffer))))))
       (setq-default truncate-lines truncated)
       (dwell-test-stop-servers)
       (dolist (buffer (buffer-list))
         (when (string-prefix-p "*Dwell" (buffer-name buffer)) (kill-buffer buffer)))
       (delete-directory directory t))))

(defconst dwell-test-source "long sum(int *p) {\n  long total = 0;\n  for (;;) total += *p;\n  p = p->next;\n  return total;\n}\n"
  "A file of six lines.")

(defmacro dwell-test-with-costs (&rest body)
  "Run BODY in a buffer whose costs are drawn."
  (declare (indent 0))
  `(dwell-test-with-file "a.c" dwell-test-source
     (dwell-test-until "overlays" (dwell-test-overlays))
     ,@body))

(provide 'dwell-test-util)
;;; dwell-test-util.el ends here
