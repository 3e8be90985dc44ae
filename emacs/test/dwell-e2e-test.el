;;; dwell-e2e-test.el --- dwell.el against the real server and a real profile  -*- lexical-binding: t; -*-

;;; Commentary:

;; Given by the environment, see e2e.sh:
;;   DWELL_TEST_SERVER  the server's script, lsp-server/dist/server.js
;;   DWELL_TEST_DB      a database whose latest epochs, the last two, have samples of a program
;;   DWELL_TEST_FILE    one of that program's sources, with lines that take time
;;   DWELL_TEST_LINE    optional: its costliest line, from 1
;;   DWELL_TEST_DWELL   optional: the `dwell' program, to record with

;;; Code:

(require 'dwell-test-util)

(defun dwell-e2e-given (name)
  "Return the file that the environment variable NAME gives, or nil."
  (let ((value (getenv name)))
    (and value (not (string-empty-p value)) (expand-file-name value))))

(defvar dwell-e2e-epoch nil
  "The database's latest epoch before the tests made any.")

(defmacro dwell-e2e-with-file (&rest body)
  "Run BODY in a buffer of the given source with its costs drawn."
  (declare (indent 0))
  `(let ((dwell-server-command (list "node" (dwell-e2e-given "DWELL_TEST_SERVER") "--stdio"))
         (dwell-database (dwell-e2e-given "DWELL_TEST_DB"))
         (dwell-program (dwell-e2e-given "DWELL_TEST_DWELL"))
         (dwell-epochs (list (or dwell-e2e-epoch "latest")))
         (create-lockfiles nil))
     (unwind-protect
         (save-window-excursion
           (with-current-buffer (find-file-noselect (dwell-e2e-given "DWELL_TEST_FILE"))
             (switch-to-buffer (current-buffer))
             (unwind-protect
                 (progn (dwell-mode)
                        (dwell-test-until "overlays" (dwell-test-overlays))
                        (unless dwell-e2e-epoch
                          (setq dwell-e2e-epoch
                                (plist-get (car (last (append (plist-get (dwell-test-ask :dwell/epochs) :epochs) nil)))
                                           :id)))
                        ,@body)
               (set-buffer-modified-p nil)
               (kill-buffer))))
       (dwell-test-stop-servers)
       (dolist (buffer (buffer-list))
         (when (string-prefix-p "*Dwell" (buffer-name buffer)) (kill-buffer buffer))))))

(ert-deftest dwell-e2e-lines ()
  (dwell-e2e-with-file
    (message "Lines: %S" (dwell-test-overlays))
    (dwell-hottest-line)
    (when-let ((line (getenv "DWELL_TEST_LINE")))
      (should (= (string-to-number line) (line-number-at-pos))))
    (should (string-match-p "[0-9] %" (cdr (assoc (line-number-at-pos) (dwell-test-overlays)))))
    (should (dwell-test-overlays 'procedure))
    ;; an edit above moves it, an edit on it makes it stale
    (let ((line (line-number-at-pos)) (count (length (dwell-test-overlays))))
      (save-excursion (goto-char (point-min)) (insert "\n"))
      (should (= count (length (dwell-test-overlays))))
      (should (assoc (1+ line) (dwell-test-overlays)))
      (end-of-line)
      (insert " ")
      (should (string-prefix-p "edited" (cdr (assoc (1+ line) (dwell-test-overlays))))))))

(ert-deftest dwell-e2e-hot-list-and-listing ()
  (dwell-e2e-with-file
    (dwell-hot-procedures)
    (let ((hot (window-buffer)))
      (with-current-buffer hot
        (dwell-test-until "rows" (> (buffer-size) 0))
        (message "Hot procedures:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 800)))
        (goto-char (point-min))
        (dwell-hot-listing))
      (dwell-test-until "the listing" (not (eq hot (window-buffer)))))
    (with-current-buffer (window-buffer)
      (message "Listing:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 2000)))
      (should (derived-mode-p 'dwell-listing-mode))
      (should (= (count-lines (point-min) (point-max)) (length dwell-listing--lines)))
      (goto-char (point-min))
      (dwell-listing-next-stall)
      (should (dwell-listing--stall-here-p))
      (dwell-listing-visit)
      (should (buffer-file-name (window-buffer))))))

(ert-deftest dwell-e2e-hot-list-by-other-rows ()
  (dwell-e2e-with-file
    (dwell-hot-procedures)
    (with-current-buffer (window-buffer)
      (dwell-test-until "rows" (> (buffer-size) 0))
      (dolist (by '("image" "line" "app"))
        (dwell-hot-by by)
        (dwell-test-until by (string-match-p (concat "by " (dwell-table--what by) ":") (format "%s" mode-line-process)))
        (should (> (buffer-size) 0))))))

(ert-deftest dwell-e2e-sql ()
  (dwell-e2e-with-file
    (dwell-sql "SELECT demangled, count FROM procedure_samples WHERE epoch = dwell_epoch('e2e-after') ORDER BY count DESC")
    (with-current-buffer (window-buffer)
      (let* ((said (dwell-test-messages
                     (dwell-test-until "an answer" (not (string-match-p "running" mode-line-process)))))
             (missing (seq-find (lambda (text) (string-match-p "no usable DuckDB" text)) said)))
        (when missing
          (message "SKIPPED emacs-e2e-sql: %s" missing)
          (ert-skip missing)))
      (message "SQL:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 400)))
      (should (string-match-p "rows" mode-line-process))
      (should (string-match-p "^ *chase +[0-9]+$" (buffer-string))))))

(ert-deftest dwell-e2e-epochs ()
  (dwell-e2e-with-file
    (dwell-test-until "the epochs" (dwell--selected (dwell--connection)))
    (let* ((result (dwell-test-ask :dwell/epochs))
           (id (plist-get (aref (plist-get result :epochs) 0) :id)))
      (should (cdr (assoc "latest" (cons '("latest" . t) (dwell--epoch-choices result)))))
      (dwell-select-epoch (list id))
      (dwell-test-until "the selection"
        (equal (list id) (append (plist-get (dwell-test-ask :dwell/epochs) :selected) nil))))))

(ert-deftest dwell-e2e-describe-line ()
  (dwell-e2e-with-file
    (dwell-hottest-line)
    (dwell-describe-line)
    (dwell-test-until "help" (get-buffer "*Dwell line*"))
    (message "Hover:\n%s" (with-current-buffer "*Dwell line*" (buffer-string)))))

(ert-deftest dwell-e2e-unknown-procedure ()
  (dwell-e2e-with-file
    (let ((said (dwell-test-messages
                  (dwell-listing "no_such_procedure_anywhere")
                  (dwell-test-until "the end" (not (get-buffer "*Dwell listing: no_such_procedure_anywhere*"))))))
      (should (= 1 (length said)))
      (should (string-prefix-p "Dwell: " (car said))))))

(defun dwell-e2e-view (prefix)
  "Return the buffer whose name starts with PREFIX, once it has text."
  (dwell-test-until prefix
    (seq-find (lambda (buffer) (and (string-prefix-p prefix (buffer-name buffer)) (> (buffer-size buffer) 0)))
              (buffer-list))))

(defun dwell-e2e-ids ()
  "Return the ids of the epochs, oldest first."
  (mapcar (lambda (epoch) (plist-get epoch :id)) (plist-get (dwell-test-ask :dwell/epochs) :epochs)))

(ert-deftest dwell-e2e-epoch-list ()
  (dwell-e2e-with-file
    (let ((first (car (dwell-e2e-ids))))
      (dwell-epochs)
      (with-current-buffer (dwell-e2e-view "*Dwell epochs")
        (message "Epochs:\n%s" (buffer-substring-no-properties (point-min) (point-max)))
        (should (string-match-p "\\*" (buffer-string)))
        (dwell-epochs-rename first "a new name")
        (dwell-test-until "the name" (string-match-p "a new name" (buffer-string)))
        (goto-char (point-min))
        (search-forward "a new name")
        (should (equal first (tabulated-list-get-id)))
        (dwell-epochs-show)
        (dwell-test-until "the epoch in view" (string-match-p "^ *\\* +a new name" (buffer-string)))))))

(ert-deftest dwell-e2e-what-changed ()
  (dwell-e2e-with-file
    (let* ((after (list dwell-e2e-epoch))
           (before (list (car (last (seq-take-while (lambda (id) (not (equal id dwell-e2e-epoch))) (dwell-e2e-ids))))))
           (file (current-buffer)))
      (dwell-compare before)
      (dwell-test-until "the changes" (plist-get dwell--differences :lines))
      (dwell-test-until "them on the lines"
        (seq-some (lambda (overlay) (plist-get (overlay-get overlay 'dwell-cost) :change)) (dwell--overlays nil nil 'line)))
      (message "Changes: %S" (dwell-test-overlays))
      (dwell-diff)
      (with-current-buffer (dwell-test-until "the view"
                             (seq-find (lambda (buffer) (string-prefix-p "*Dwell diff" (buffer-name buffer)))
                                       (buffer-list)))
        (dwell-test-until "what changed" dwell-diff--result) ; perhaps nothing beyond noise: no row
        (dwell-diff-toggle-all)
        (dwell-test-until "what may be chance too" (string-match-p " chase +chase" (buffer-string)))
        (message "Diff:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 800)))
        ;; Of the kernel's procedures, which may stand first, no instructions are known.
        (goto-char (point-min))
        (re-search-forward " chase +chase")
        (dwell-diff-visit))
      (with-current-buffer (dwell-e2e-view "*Dwell diff of ")
        (should (text-property-not-all (point-min) (point-max) 'dwell-row nil))
        (message "Instructions:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 800))))
      (with-current-buffer (switch-to-buffer file) ; what is hidden is refreshed when it is seen
        (dwell-compare-end)
        (dwell-test-until "the costs alone" (and (null dwell--differences) (dwell-test-overlays)))
        (dwell-diff before after)
        (dwell-test-settle)))))

(ert-deftest dwell-e2e-summary ()
  (dwell-e2e-with-file
    (dwell-hottest-line)
    (dwell-summary (car (dwell--procedures-here)))
    (with-current-buffer (dwell-e2e-view "*Dwell summary of ")
      (message "Summary:\n%s" (buffer-substring-no-properties (point-min) (point-max)))
      (should (string-match-p "^  Execution +-?[0-9.]+%" (buffer-string))))
    (should (member t (mapcar (lambda (said) (and (string-match-p "no_such_procedure" said) t))
                              (dwell-test-messages (dwell-summary "no_such_procedure") (dwell-test-settle)
                                                   (accept-process-output nil 0.5)))))))

(ert-deftest dwell-e2e-processes ()
  (dwell-e2e-with-file
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt table &rest _)
                 (seq-find (lambda (choice) (string-prefix-p (format "%d " (emacs-pid)) choice))
                           (all-completions "" table)))))
      (should (equal (emacs-pid) (dwell--read-process "Process: "))))))

(ert-deftest dwell-e2e-removing-an-epoch ()
  (skip-unless (dwell-e2e-given "DWELL_TEST_DWELL"))
  (dwell-e2e-with-file
    (dwell-record '("true") "e2e-to-remove")
    (dwell-test-until "the recording" (null dwell--recording))
    (let ((id (car (last (dwell-e2e-ids)))))
      (dwell-epochs)
      (with-current-buffer (dwell-e2e-view "*Dwell epochs")
        (dwell-test-until "its row" (dwell-table--place id))
        (cl-letf (((symbol-function 'yes-or-no-p) #'always)) (dwell-epochs-remove (list id)))
        (dwell-test-until "its end" (not (dwell-table--place id)))))))

(ert-deftest dwell-e2e-recording ()
  (skip-unless (dwell-e2e-given "DWELL_TEST_DWELL"))
  (dwell-e2e-with-file
    (let ((before (dwell-test-ask :dwell/epochs)))
      (dwell-record '("sh" "-c" "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo recorded") "emacs-e2e")
      (dwell-test-until "the recording" (null dwell--recording))
      (dwell-test-until "the new epoch in view"
        (equal '("emacs-e2e") (dwell--selected (dwell--connection))))
      (should (< (length (plist-get before :epochs))
                 (length (plist-get (dwell-test-ask :dwell/epochs) :epochs)))))))

(ert-deftest dwell-e2e-recording-is-cancelled ()
  (skip-unless (dwell-e2e-given "DWELL_TEST_DWELL"))
  (dwell-e2e-with-file
    (dwell-record '("sleep" "60"))
    (dwell-test-until "progress" (plist-get dwell--recording :progress))
    (accept-process-output nil 1)
    (let ((said (dwell-test-messages
                  (dwell-record-cancel)
                  (dwell-test-until "the end" (null dwell--recording)))))
      (should (string-prefix-p "Dwell: not recorded: " (car (last said)))))))

(ert-deftest dwell-e2e-recording-that-fails ()
  (skip-unless (dwell-e2e-given "DWELL_TEST_DWELL"))
  (dwell-e2e-with-file
    (let ((said (dwell-test-messages
                  (dwell-record '("/nonexistent/program"))
                  (dwell-test-until "the end" (null dwell--recording)))))
      (message "Failed recording: %S" said)
      (should (string-match-p "Dwell: not recorded: .*/nonexistent/program" (car (last said)))))))

(ert-deftest dwell-e2e-without-a-database ()
  (let* ((dwell-server-command (list "node" (dwell-e2e-given "DWELL_TEST_SERVER") "--stdio"))
         (dwell-database (make-temp-file "dwell-empty" t))
         (said (dwell-test-messages
                 (dwell-test-with-file "a.c" "int x;\n"
                   (dwell-test-until "the answer" (and (dwell--document-live-p) (null dwell--fetching)))
                   (should-not (dwell--overlays))
                   (insert "typing works")))))
    (message "Without a database: %S" said)
    (delete-directory dwell-database t)
    (should (<= (length said) 1))))

;;;; What is wrong with a profile

(defun dwell-e2e-segments (database)
  "Return the segments of DATABASE."
  (directory-files-recursively database "\\.parquet\\'"))

(defun dwell-e2e-spoil-with (fixture)
  "Return a function that adds FIXTURE, a bad segment, to each epoch of a database."
  (lambda (database)
    (let ((bad (expand-file-name (concat "../../test-fixtures/profiles/" fixture) dwell-test-directory)))
      (dolist (epoch (delete-dups (mapcar #'file-name-directory (dwell-e2e-segments database))))
        (copy-file bad (expand-file-name "segment-000099.parquet" epoch))))))

(defconst dwell-e2e-spoils
  `(("a segment cut short" ,(dwell-e2e-spoil-with "truncated.parquet") "segment-000099" t)
    ("a segment of a later version" ,(dwell-e2e-spoil-with "newer.parquet") "segment-000099" t)
    ("an epoch without its description"
     ,(lambda (database)
        (mapc #'delete-file (directory-files-recursively database "\\`epoch\\.json\\'")))
     nil nil)
    ("the program gone"
     ,(lambda (_) (rename-file (file-name-sans-extension (dwell-e2e-given "DWELL_TEST_FILE"))
                               (concat (dwell-e2e-given "DWELL_TEST_FILE") ".away")))
     nil nil)
    ("another user's database"
     ,(lambda (database)
        (set-file-modes database #o700)
        (setq dwell-server-command
              `("setpriv" "--reuid=65534" "--regid=65534" "--clear-groups" ,@dwell-server-command)))
     nil nil))
  "What is wrong, how to bring it about, what is told, whether costs are there.")

(ert-deftest dwell-e2e-bad-profiles ()
  "Whatever is wrong with a profile, the editor says so once, at most, and works."
  (pcase-dolist (`(,name ,spoil ,told ,costs)
                 (if (and (zerop (user-uid)) (executable-find "setpriv")) dwell-e2e-spoils
                   (message "SKIPPED emacs-another-users-database: not root, or no setpriv")
                   (butlast dwell-e2e-spoils)))
    (let* ((away (concat (dwell-e2e-given "DWELL_TEST_FILE") ".away"))
           (program (file-name-sans-extension (dwell-e2e-given "DWELL_TEST_FILE")))
           (folder (make-temp-file "dwell-bad" t)) (database (expand-file-name "db" folder))
           (dwell-server-command (list "node" (dwell-e2e-given "DWELL_TEST_SERVER") "--stdio"))
           (dwell-database database) (create-lockfiles nil) said)
      (copy-directory (dwell-e2e-given "DWELL_TEST_DB") database)
      (set-file-modes folder #o755)
      (funcall spoil database)
      (unwind-protect
          (save-window-excursion
            (with-current-buffer (find-file-noselect (dwell-e2e-given "DWELL_TEST_FILE"))
              (switch-to-buffer (current-buffer))
              (setq said (dwell-test-messages
                           (dwell-mode)
                           (dwell-test-until name (and dwell--costs (null dwell--fetching)))
                           (insert "typing works")
                           (dwell-test-settle)))
              (ert-info ((format "%s: %S, notes %S, overlays %d" name said (plist-get dwell--costs :notes)
                                 (length (dwell--overlays nil nil 'line))))
                (should (<= (length said) 1))
                (should (eq costs (and (dwell-test-overlays) t))))
              (dwell-hot-procedures)
              (with-current-buffer (window-buffer)
                (dwell-test-until "words or rows" (> (buffer-size) 0))
                (message "With %s: %s" name (buffer-substring-no-properties (point-min) (min (point-max) 400)))
                (ert-info ((format "%s: notes %S" name dwell-table--notes))
                  (should (or (null told) (string-match-p told (string-join dwell-table--notes "\n"))))))
              (set-buffer-modified-p nil)
              (kill-buffer)))
        (dwell-test-stop-servers)
        (dolist (buffer (buffer-list))
          (when (string-prefix-p "*Dwell" (buffer-name buffer)) (kill-buffer buffer)))
        (when (file-exists-p away) (rename-file away program))
        (delete-directory folder t)))))

(ert-deftest dwell-e2e-graph ()
  (dwell-e2e-with-file
    (dwell-hottest-line)
    (dwell-graph (car (dwell--procedures-here)))
    (with-current-buffer (dwell-e2e-view "*Dwell graph of ")
      (message "Graph:\n%s" (buffer-substring-no-properties (point-min) (min (point-max) 2000)))
      (dwell-graph-hottest)
      (dwell-graph-goto-successor)
      (should (= (length (plist-get dwell-graph--result :blocks))
                 (length (delete-dups (cl-loop for place = (point-min) then (next-single-property-change place 'dwell-block)
                                               while place
                                               collect (get-text-property place 'dwell-block) into addresses
                                               finally return (delq nil addresses))))))
      (dwell-graph-visit))
    (dwell-e2e-view "*Dwell listing: ")))

(ert-deftest dwell-e2e-import-that-fails ()
  (skip-unless (dwell-e2e-given "DWELL_TEST_DWELL"))
  (dwell-e2e-with-file
    (let ((said (dwell-test-messages
                  (dwell-import-perf (dwell-e2e-given "DWELL_TEST_FILE"))
                  (dwell-test-until "the end" (null dwell--recording)))))
      (should (string-match-p "\\`Dwell: not recorded: [^\n]+\\'" (car (last said)))))))

(provide 'dwell-e2e-test)
;;; dwell-e2e-test.el ends here
