;;; dwell-views-test.el --- Tests of epochs, changes and summaries  -*- lexical-binding: t; -*-

;;; Commentary:

;; The lists, buffers and lines that tell one run from another, against a scripted server:
;; fake-server.mjs has epochs `before' and 20261121T100000Z; line 3 (from 1) got slower, line 6 is gone.

;;; Code:

(require 'dwell-test-util)

(defun dwell-test-view (prefix)
  "Return the buffer whose name starts with PREFIX, once it has text."
  (dwell-test-until prefix
    (seq-find (lambda (buffer) (and (string-prefix-p prefix (buffer-name buffer)) (> (buffer-size buffer) 0)))
              (buffer-list))))

(defmacro dwell-test-in (prefix &rest body)
  "Run BODY in the buffer whose name starts with PREFIX, once it has text."
  (declare (indent 1))
  `(with-current-buffer (dwell-test-view ,prefix) ,@body))

(defun dwell-test-lines ()
  "Return this buffer's lines, each run of blanks as one."
  (mapcar (lambda (line) (string-trim (replace-regexp-in-string " +" " " line)))
          (split-string (buffer-substring-no-properties (point-min) (point-max)) "\n" t)))

(defun dwell-test-sent (command)
  "Return the argument that the server's COMMAND was sent last."
  (dwell-test-settle)
  (cl-loop for message across (dwell-test-ask :fake/messages)
           for params = (plist-get message :params)
           when (and (listp params) (equal command (plist-get params :command)))
           collect (aref (plist-get params :arguments) 0) into arguments
           finally return (car (last arguments))))

(defmacro dwell-test-in-utc (&rest body)
  "Run BODY with times told in UTC."
  (declare (indent 0))
  `(unwind-protect (progn (set-time-zone-rule "UTC0") ,@body)
     (set-time-zone-rule nil)))

;;;; Epochs

(ert-deftest dwell-epoch-list-shows-all-epochs ()
  (dwell-test-in-utc
    (dwell-test-with-costs
      (dwell-epochs)
      (dwell-test-in "*Dwell epochs"
        (should (equal (dwell-test-lines)
                       '("* 20261121T100000Z 2026-11-21 10:00 running 1,000 3 testhost ./a.out"
                         "before 2026-11-20 09:00 1 m 00 s 1,000 3 testhost ./a.out")))
        (should (string-match-p "2 recordings" mode-line-process))))))

(ert-deftest dwell-epoch-list-shows-one-or-several ()
  (dwell-test-with-costs
    (dwell-epochs)
    (dwell-test-in "*Dwell epochs"
      (search-forward "before")
      (dwell-epochs-show)
      (should (equal (dwell-test-sent "dwell.server.selectEpochs") ["20261120T090000Z"]))
      (dwell-test-until "the mark of what is shown"
        (string-match-p "^  \\*  before" (buffer-string)))
      (dwell-epochs-mark)
      (goto-char (point-min))
      (dwell-epochs-mark)
      (should (string-match-p "^ >.  2026" (buffer-string)))
      (dwell-epochs-show)
      (should (equal (dwell-test-sent "dwell.server.selectEpochs") ["20261120T090000Z" "20261121T100000Z"]))
      (dwell-epochs-unmark-all)
      (should-not (string-match-p ">" (buffer-string))))))

(ert-deftest dwell-epochs-are-renamed ()
  (dwell-test-with-costs
    (dwell-epochs)
    (dwell-test-in "*Dwell epochs"
      (goto-char (point-min))
      (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "evening")))
        (call-interactively #'dwell-epochs-rename))
      (dwell-test-until "the new name" (string-match-p "evening" (buffer-string)))
      (should (equal (dwell-test-sent "dwell.server.renameEpoch") '(:epoch "20261121T100000Z" :name "evening")))
      (should-error (dwell-epochs-rename "20261121T100000Z" "") :type 'user-error))))

(ert-deftest dwell-epochs-are-removed-on-request ()
  (dwell-test-with-costs
    (dwell-epochs)
    (dwell-test-in "*Dwell epochs"
      (search-forward "before")
      (let (question)
        (cl-letf (((symbol-function 'yes-or-no-p) (lambda (text) (setq question text) nil)))
          (call-interactively #'dwell-epochs-remove))
        (should (equal question "Remove 20261120T090000Z with 1,000 samples for good? ")))
      (should-not (dwell-test-sent "dwell.server.removeEpochs"))
      (cl-letf (((symbol-function 'yes-or-no-p) #'always))
        (call-interactively #'dwell-epochs-remove))
      (should (equal (dwell-test-sent "dwell.server.removeEpochs") ["20261120T090000Z"]))
      (dwell-test-until "its end" (not (string-match-p "before" (buffer-string))))
      (should (equal (tabulated-list-get-id) "20261121T100000Z")))))

(ert-deftest dwell-durations-and-thousands ()
  (should (equal (mapcar #'dwell--format-duration '(0.4 59 60 3599 3600 90000))
                 '("0 s" "59 s" "1 m 00 s" "59 m 59 s" "1 h 00 m" "1 d 01 h")))
  (should (equal (mapcar #'dwell--format-thousands '(0 999 1000 1234567)) '("0" "999" "1,000" "1,234,567"))))

(ert-deftest dwell-recording-a-process ()
  (dwell-test-with-costs
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt table &rest _)
                 (should (equal (all-completions "" table) '("42 lua")))
                 (should (equal (funcall (completion-metadata-get (completion-metadata "" table nil) 'annotation-function)
                                         "42 lua")
                                "  me  3.2 s  lua a.lua"))
                 "42 lua"))
              ((symbol-function 'read-number) (lambda (&rest _) 5)))
      (should (member "Dwell: made recording of 42 for 5 s"
                      (dwell-test-messages
                        (call-interactively #'dwell-record-process)
                        (dwell-test-until "the recording" (null dwell--recording))))))))

(ert-deftest dwell-importing-perf-data ()
  (dwell-test-with-costs
    (dwell-import-perf "perf.data" "import")
    (dwell-test-until "the import" (null dwell--recording))
    (should (equal (dwell-test-sent "dwell.server.importPerf")
                   (list :path (expand-file-name "perf.data") :name "import")))))

(ert-deftest dwell-exporting-a-report ()
  (dwell-test-with-costs
    (let ((page (expand-file-name "r.html")))
      (should (member (format "Dwell: wrote %s; `M-x browse-url-of-file' shows it" page)
                      (dwell-test-messages
                        (dwell-export-report "r.html")
                        (dwell-test-until "the page" (dwell-test-sent "dwell.server.report"))
                        (sit-for 0.2))))
      (should (equal (dwell-test-sent "dwell.server.report") (list :path page))))))

;;;; Before and after

(ert-deftest dwell-lines-show-what-changed ()
  (dwell-test-with-costs
    (dwell-compare '("before"))
    (should (equal (dwell-test-until "the changes" (and (= 3 (length (dwell-test-overlays))) (dwell-test-overlays)))
                   '((3 . "█▋   +22.1% · slower ×2.00 · CPI 2.1→4.2 · 42 % · 1.3 s")
                     (4 . "▎    no change beyond noise · 5.0 % · 150 ms")
                     (6 . "▏    −9.0% · gone · 0.0 %"))))
    (should (equal (substring-no-properties (dwell--lighter)) " Dwell[before → 20261121T100000Z]"))
    (goto-char (point-min))
    (forward-line 2)
    (let (told)
      (dwell-eldoc-function (lambda (text &rest _) (setq told text)))
      (should (string-prefix-p "+22.1% · slower ×2.00 · CPI 2.1→4.2 · 200 → 421 samples · 42 % · 1.3 s"
                               told)))
    ;; an edit makes it stale like any cost
    (end-of-line)
    (insert "x")
    (should (string-prefix-p "edited" (cdr (assoc 3 (dwell-test-overlays)))))
    (delete-char -1)
    (dwell-compare-end)
    (dwell-test-until "the costs alone" (= 2 (length (dwell-test-overlays))))
    (should (string-match-p "D-cache or DTLB miss" (cdr (assoc 3 (dwell-test-overlays)))))))

(ert-deftest dwell-changes-that-fail-leave-the-costs ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:error (:dwell/fileChanges (:code -32803 :message "epoch gone"))))
    (should (member "Dwell: epoch gone"
                    (dwell-test-messages
                      (dwell-compare '("before"))
                      (dwell-test-until "the baseline" (dwell--baseline (dwell--connection)))
                      (dwell-test-until "the refresh" (and (null dwell--refresh-timer) (null dwell--fetching))))))
    (should (equal (dwell-test-shares) '((3 . "42 %") (4 . "5.0 %"))))))

(ert-deftest dwell-diff-list ()
  (dwell-test-with-costs
    (dwell-diff '("before"))
    (dwell-test-in "*Dwell diff"
      (should (equal (dwell-test-lines)
                     '("+22.1% slower +221 M ×1.0 2.1→4.2 200→421 sum(int*) a.out"
                       "−9.0% gone −90 M - 2.1→- 90→0 old() a.out")))
      (should (string-match-p "before → 20261121T100000Z: \\+22.1% in all, by run" mode-line-process))
      (goto-char (point-min))
      (should (eq 'dwell-worse (get-text-property (+ 4 (point)) 'face)))
      (forward-line)
      (should (eq 'dwell-better (get-text-property (+ 4 (point)) 'face)))
      (should (equal (dwell-test-messages (dwell-table-notes))
                     '("1 more functions changed within chance (`a' lists them)\nother machine models")))
      (dwell-diff-toggle-all)
      (dwell-test-until "what may be chance" (= 3 (length (dwell-test-lines))))
      (goto-char (point-min))
      (search-forward "main")
      (should (eq 'dwell-noise (get-text-property (+ 4 (line-beginning-position)) 'face)))
      (dwell-diff-by-line)
      (should (string-match-p " a\\.c:3$" (car (dwell-test-lines))))
      (goto-char (point-max))
      (forward-line -1)
      (should-error (dwell-diff-visit) :type 'user-error) ; gone
      (should-error (dwell-diff-listing) :type 'user-error)
      (goto-char (point-min))
      (save-window-excursion
        (dwell-diff-visit)
        (should (equal (buffer-file-name (window-buffer)) file))
        (with-current-buffer (window-buffer) (should (= 3 (line-number-at-pos))))))))

(ert-deftest dwell-lists-without-rows-explain-why ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:quiet t))
    (dwell-diff '("before"))
    (dwell-test-in "*Dwell diff"
      (let ((text-quoting-style 'grave))
        (should (equal (dwell-test-lines)
                       '("No function changed beyond what may be chance from before to 20261121T100000Z."
                         "1 more functions changed within chance (`a' lists them)"
                         "other machine models"))))
      (should-error (dwell-diff-visit) :type 'user-error)
      (dwell-diff-toggle-all)
      (dwell-test-until "what may be chance" (string-match-p "main" (buffer-string)))
      (dwell-table-filter "nothing like it")
      (should (equal (dwell-test-lines) '("No row matches /nothing like it/; an empty filter shows all.")))
      (dwell-table-filter "")
      (should (string-match-p "main" (buffer-string))))
    (dwell-hot-procedures)
    (dwell-test-in "*Dwell hot"
      (should (equal (dwell-test-lines)
                     '("No samples in what is shown: E lists the recordings, M-x dwell-record records one."))))
    (dwell-test-ask :fake/set '(:epochs []))
    (dwell-epochs)
    (dwell-test-in "*Dwell epochs"
      (should (equal (dwell-test-lines)
                     '("No recordings yet: r records a command, P a process, i imports a perf.data."))))))

(ert-deftest dwell-diff-needs-something-to-compare-with ()
  (dwell-test-with-costs
    (should (member "Dwell: nothing to compare with: pin an epoch, or name those before"
                    (dwell-test-messages (dwell-diff) (dwell-test-settle))))))

(ert-deftest dwell-diff-of-no-instructions ()
  (dwell-test-with-costs
    (dwell-diff '("before"))
    (dwell-test-in "*Dwell diff"
      (goto-char (point-min))
      (search-forward "old()")
      (dwell-diff-visit))
    (dwell-test-in "*Dwell diff of a.out:old"
      (should (equal (car (dwell-test-lines))
                     "No instructions of this function are known: its binary is not here")))))

(ert-deftest dwell-diff-of-instructions ()
  (dwell-test-with-costs
    (dwell-diff '("before"))
    (dwell-test-in "*Dwell diff"
      (goto-char (point-min))
      (dwell-diff-visit))
    (dwell-test-in "*Dwell diff of a.out:sum"
      (should (equal (dwell-test-lines)
                     '("other machine models"
                       "1000 mov (%rdi),%rax 200 2000 mov (%rdi),%rax 421 +22.1% · slower ×2.00 · CPI 2.1→4.2"
                       "1003 nop 90 - −9.0% · gone"
                       "1004 add $1,%rcx 50 ~ 2003 add $2,%rcx 52")))
      (goto-char (point-min))
      (dwell-diff-instructions-next 2)
      (should (looking-at-p "1003"))
      (should-error (dwell-diff-instructions-next) :type 'user-error)
      (dwell-diff-instructions-previous)
      (should (looking-at-p "1000"))
      (dwell-diff-instructions-visit))
    (with-current-buffer (window-buffer)
      (should (equal buffer-file-name file))
      (should (= 3 (line-number-at-pos))))))

;;;; Callers

(defconst dwell-test-callers
  '("sum(int*) a.out"
    "Shares of its 40 samples, 50.0% of 80 with a call stack; 30 in itself. The outer frames of 1 of all stacks are not known."
    "75.0% + parse a.c:2 +1 a.out"
    "22.5% + load (inlined) a.c:3 a.out"
    "2.5% [incomplete] a.out")
  "The callers that the scripted server knows.")

(ert-deftest dwell-callers-unfold-and-fold ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (call-interactively #'dwell-callers)
    (dwell-test-in "*Dwell callers"
      (should (equal (dwell-test-lines) dwell-test-callers))
      (should (looking-at-p " 75.0%"))
      (dwell-callers-toggle)
      (dwell-test-until "the callers of parse" (save-excursion (search-forward "main" nil t)))
      (should (equal (seq-subseq (dwell-test-lines) 2 4) '("75.0% - parse a.c:2 +1 a.out" "75.0% + main a.out")))
      (dwell-callers-next)
      (dwell-callers-toggle)
      (should (equal (dwell-test-messages (dwell-test-settle))
                     '("Dwell: nothing calls it: the stacks begin there")))
      (dwell-callers-up)
      (should (looking-at-p " 75.0% - parse"))
      ;; A new profile comes: what is unfolded stays so.
      (revert-buffer)
      (dwell-test-settle)
      (dwell-test-until "the callers of parse again" (save-excursion (search-forward "main" nil t)))
      (dwell-callers-toggle)
      (should (equal (dwell-test-lines) dwell-test-callers))
      (goto-char (point-max))
      (forward-line -1)
      (should-error (dwell-callers-toggle) :type 'user-error)
      (should-error (dwell-callers-next) :type 'user-error)
      (should-error (dwell-callers-visit) :type 'user-error))))

(ert-deftest dwell-callers-lead-to-calls-and-turn-into-callees ()
  (dwell-test-with-costs
    (let ((file buffer-file-name))
      (dwell-callers "a.out:sum")
      (dwell-test-in "*Dwell callers"
        (dwell-callers-visit))
      (should (equal buffer-file-name file))
      (should (= 2 (line-number-at-pos)))
      (dwell-test-in "*Dwell callers"
        (dwell-callers-turn)
        (dwell-test-until "callees" (save-excursion (goto-char (point-min)) (search-forward "memcpy" nil t)))
        (should (equal (car (last (dwell-test-lines))) "25.0% + memcpy a.c:4 a.out"))
        (kill-buffer))
      (goto-char (point-max))
      (dwell-callees)
      (should (equal (dwell-test-messages (dwell-test-settle)) '("Dwell: a.c:7: no function with call stacks is here")))
      (should-not (get-buffer "*Dwell callers*")))))

;;;; Counted calls

(ert-deftest dwell-calls-are-counted-until-they-are-stopped ()
  (dwell-test-with-costs
    (let ((file buffer-file-name)
          (uri dwell--document))
      (goto-char (point-min))
      (forward-line 1)
      (dwell-count-calls 42)
      (dwell-test-settle)
      (should (equal (dwell-test-sent "dwell.server.countCalls")
                     (list :textDocument (list :uri uri) :position '(:line 1 :character 0) :pids [42])))
      (dwell-test-in "*Dwell calls"
        (dwell-test-until "the paths" (save-excursion (goto-char (point-min)) (search-forward "often" nil t)))
        (should (equal (dwell-test-lines)
                       '("work 1.0 k calls/s prog"
                         "75.0% 3000 calls, mean 3.2 µs often a.c:7 ← main a.c:10"
                         "25.0% 1000 calls, mean 3.2 µs [unknown]"
                         "2 more paths")))
        (goto-char (point-min))
        (should-error (dwell-calls-visit) :type 'user-error)
        (forward-line 1)
        (dwell-calls-count-caller)
        (dwell-test-until "the caller" (save-excursion (goto-char (point-min)) (search-forward "prog:often" nil t)))
        (forward-line 1)
        (should-error (dwell-calls-count-caller) :type 'user-error)
        (forward-line -1)
        (dwell-stop-counting)
        (dwell-test-until "the end" (save-excursion (goto-char (point-min)) (search-forward "4,000 calls in 4 s" nil t)))
        (goto-char (point-min))
        (forward-line 1)
        (dwell-calls-visit))
      (should (equal (buffer-file-name (window-buffer)) file))
      (with-current-buffer (window-buffer) (should (= 7 (line-number-at-pos))))
      (dwell-test-in "*Dwell calls"
        (dwell-stop-counting)
        (dwell-test-until "nothing" (save-excursion (goto-char (point-min)) (search-forward "Nothing is counted" nil t)))))))

;;;; Summary

(ert-deftest dwell-summary-shows-ranges ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (forward-line 2)
    (call-interactively #'dwell-summary)
    (dwell-test-in "*Dwell summary of a.out:sum"
      (should (equal (dwell-test-lines)
                     '("a.out:sum"
                       "1.0 k samples of cpu-clock, 95.0% of them tallied · 950 M cycles · 1.9 cycles/instr (ideal 0.50) · amd-zen4 · 20261121T100000Z"
                       "Dynamic stalls"
                       "D-cache miss 30.0% to 60.0% ████████████░░░░░░░░░░░░"
                       "DTLB miss 0.0% to 20.0% ░░░░░░░░"
                       "Unexplained stall 5.0% ██"
                       "Unexplained gain -1.0%"
                       "Subtotal dynamic 64.0% ██████████████████████████"
                       "Static stalls"
                       "slotting 6.0% ██"
                       "Subtotal static 6.0% ██"
                       "Total stall 70.0% ████████████████████████████"
                       "Execution 28.0% ███████████"
                       "Net sampling error 2.0% █"
                       "low confidence")))
      (dwell-summary-listing)
      (dwell-test-view "*Dwell listing: a.out:sum"))
    (dwell-summary nil "libc")
    (dwell-test-view "*Dwell summary of libc")
    (let ((current-prefix-arg '(4))) (call-interactively #'dwell-summary))
    (dwell-test-in "*Dwell summary of all"
      (should-error (dwell-summary-listing) :type 'user-error))))

(ert-deftest dwell-summary-that-fails-leaves-no-buffer ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:error (:dwell/summary (:code -32803 :message "no procedure named nix"))))
    (should (equal (dwell-test-messages
                     (dwell-summary "nix")
                     (dwell-test-settle))
                   '("Dwell: no procedure named nix")))
    (should-not (seq-find (lambda (buffer) (string-prefix-p "*Dwell summary" (buffer-name buffer))) (buffer-list)))))

;;;; Lists

(ert-deftest dwell-refresh-keeps-the-row-in-every-window ()
  (dwell-test-with-costs
    (dwell-hot-procedures)
    (dwell-test-in "*Dwell hot"
      (let ((window (get-buffer-window)))
        (goto-char (point-min))
        (set-window-point window (point-min))
        (search-forward "memcpy")
        (set-window-point window (point))
        (select-window (or (seq-find (lambda (other) (not (eq other window))) (window-list)) (split-window)))
        (switch-to-buffer "*scratch*")
        (with-current-buffer (window-buffer window)
          (revert-buffer)
          (dwell-test-settle)
          (should (equal "libc.so.6:memcpy" (tabulated-list-get-id (window-point window)))))))))

(ert-deftest dwell-listing-folds-and-finds ()
  (dwell-test-with-costs
    (dwell-listing "a.out:sum")
    (dwell-test-in "*Dwell listing: a.out:sum"
      (goto-char (point-min))
      (should (outline-on-heading-p))
      (outline-hide-body)
      (should (invisible-p (line-beginning-position 3)))
      (outline-show-all)
      ;; a branch's target, a culprit's address, an operand's culprit
      (search-forward "jne 4010")
      (dwell-listing-goto-definition)
      (should (= 3 (line-number-at-pos)))
      (search-forward "jne")
      (backward-char 2)
      (dwell-listing-goto-definition)
      (should (= 3 (line-number-at-pos)))
      (search-forward "9.3cy  401")
      (dwell-listing-goto-definition)
      (should (= 3 (line-number-at-pos)))
      (forward-line 2)
      (search-forward "add")
      (dwell-listing-goto-definition)
      (should (= 3 (line-number-at-pos)))
      ;; a register: to what wrote it last
      (forward-line 2)
      (search-forward "%ra")
      (dwell-listing-goto-definition)
      (should (= 3 (line-number-at-pos)))
      (dwell-listing-summary)
      (dwell-test-view "*Dwell summary of a.out:sum"))))

;;;; Graph

(ert-deftest dwell-graph-has-a-text-form ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (forward-line 2)
    (call-interactively #'dwell-graph)
    (dwell-test-in "*Dwell graph of a.out:sum"
      (should (equal (mapcar #'string-trim-right
                             (split-string (buffer-substring-no-properties (point-min) (point-max)) "\n" t))
                     '("     ▍    401000  10%   executed 1.0 M   CPI 2.0 (best 0.50)   high confidence"
                       "          401000    xor %eax,%eax"
                       "          401002    jmp 401010"
                       "╭────     → 401010 ×1"
                       "│"
                       "│ ╭─▶██▊  401004  70%   executed 1.0 M   CPI 2.0 (best 0.50)   high confidence"
                       "│ │       401004    add (%rdi),%rax"
                       "│ │       ↓ 401010 100%"
                       "│ │"
                       "╰─┼─▶▊    401010  20%   executed 1.0 M   CPI 2.0 (best 0.50)   high confidence"
                       "  │       401010    jne 401004"
                       "  ╰──     → 401004 ×1.0 M   ↓ 401014 not seen"
                       ""
                       "     ▏    401014  0%   executed 1.0 M   CPI 2.0 (best 0.50)   high confidence"
                       "          401014    ret"
                       "          leaves the function"
                       "")))
      (should (string-match-p "(2 more blocks)" header-line-format))
      (dwell-graph-hottest)
      (should (eql #x401004 (dwell-graph--address)))
      (dwell-graph-next)
      (should (eql #x401010 (dwell-graph--address)))
      ;; a new profile leaves point on its block
      (revert-buffer)
      (dwell-test-settle)
      (should (eql #x401010 (dwell-graph--address)))
      (dwell-graph-goto-successor)
      (should (eql #x401004 (dwell-graph--address)))
      (dwell-graph-previous)
      (should-error (dwell-graph-previous) :type 'user-error)
      (should-error (dwell-graph-zoom-in) :type 'user-error)
      (should-error (dwell-graph-toggle-picture) :type 'user-error)
      (dwell-graph-hottest)
      (forward-line 1)
      (dwell-graph-visit))
    (dwell-test-view "*Dwell listing: a.out:sum")))

(ert-deftest dwell-graph-uses-colours-of-the-theme ()
  (cl-letf (((symbol-function 'face-foreground) (lambda (face &rest _) (if (eq face 'default) "#ffffff" "#ff0000")))
            ((symbol-function 'face-background) (lambda (&rest _) "#000000")))
    (let ((svg (dwell-graph--themed "<svg width=\"1\"><text>a\\&b</text></svg>")))
      (should (string-prefix-p "<svg xml:space=\"preserve\" width=\"1\"><style>svg{background:#000000} text{fill:#ffffff;" svg))
      (should (string-match-p (regexp-quote ".heat-0 rect{fill:#000000} ") svg))
      (should (string-match-p (regexp-quote ".heat-8 rect{fill:#660000} ") svg))
      (should (string-suffix-p "<text>a\\&b</text></svg>" svg)))))

(ert-deftest dwell-graph-that-fails-leaves-no-buffer ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:error (:dwell/cfg (:code -32803 :message "no procedure named nix"))))
    (should (equal (dwell-test-messages (dwell-graph "nix") (dwell-test-settle))
                   '("Dwell: no procedure named nix")))
    (should-not (seq-find (lambda (buffer) (string-prefix-p "*Dwell graph" (buffer-name buffer))) (buffer-list)))))

;;;; SQL

(ert-deftest dwell-sql-lists-the-rows-of-a-query ()
  (dwell-test-with-costs
    (dwell-sql "SELECT 1")
    (dwell-test-in "*Dwell SQL"
      (dwell-test-until "rows" (string-match-p "the first 3 rows" mode-line-process))
      (should (equal (dwell-test-lines) '("/bin/a b 3440 true" "kernel 9223372036854775807 false" "8")))
      (should (equal (mapcar #'car tabulated-list-format) '("path" "n" "hot")))
      (should (equal (dwell-test-messages (dwell-table-notes))
                     '("there are more rows (`dwell-sql-limit')\na segment is damaged")))
      (tabulated-list-sort 1)
      (should (equal (dwell-test-lines) '("8" "/bin/a b 3440 true" "kernel 9223372036854775807 false")))
      (should (member "Dwell: Binder Error: no such column"
                      (dwell-test-messages
                        (cl-letf (((symbol-function 'read-string)
                                   (lambda (_prompt initial &rest _) (should (equal initial "SELECT 1")) "COPY")))
                          (dwell-sql-edit))
                        (dwell-test-settle))))
      (should (string-match-p "failed" mode-line-process)))))

(provide 'dwell-views-test)
;;; dwell-views-test.el ends here
