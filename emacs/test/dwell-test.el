;;; dwell-test.el --- Tests of dwell.el against a scripted server  -*- lexical-binding: t; -*-

;;; Commentary:

;; The server is fake-server.mjs.  What it answers for every file is the table in it: lines 3, 4
;; and 5 (from 1) cost something, line 10000 too, which no file here has.

;;; Code:

(require 'dwell-test-util)

;;;; Words for numbers

(ert-deftest dwell-numbers-are-formatted ()
  (should (equal (mapcar #'dwell--format-count '(0 7 999 1000 12345 999499 999500 1.2e9 0.4 47.25 3e16))
                 '("0" "7" "999" "1.0 k" "12 k" "999 k" "1.0 M" "1.2 G" "0" "47" "30 P")))
  (should (equal (mapcar #'dwell--format-share '(0 0.0001 0.001 0.421 1 14.97))
                 '("0.0%" "<0.1%" "0.1%" "42.1%" "100%" "1497%")))
  (should (equal (mapcar #'dwell--format-ratio '(0.5 0.996 4.25 120.2)) '("0.50" "1.0" "4.2" "120")))
  (should (equal (mapcar #'dwell--format-culprit '((:cause "d-cache-miss" :label "D-cache miss") (:cause "new-cause" :label "a new cause")))
                 '("D-cache miss" "a new cause")))
  (should (equal (mapcar (lambda (share) (substring-no-properties (dwell--bar share))) '(0 0.01 0.25 0.3 1))
                 '("▏   " "▏   " "█   " "█▎  " "████"))))

(ert-deftest dwell-addresses-are-signed ()
  (let ((digits '("1150" "7fffffffffff" "ffffffff81000010" "ffff800080010004")))
    (should (equal '(#x1150 #x7fffffffffff -2130706416) (mapcar #'dwell--address (seq-take digits 3))))
    (should (equal digits (mapcar (lambda (each) (dwell--hex (dwell--address each))) digits)))))

(ert-deftest dwell-uris ()
  (let* ((directory (file-name-as-directory (make-temp-file "dwell ü" t)))
         (file (expand-file-name "a b%#ü.c" directory)))
    (unwind-protect
        (progn
          (should (string-match-p "\\`file:///[!-~]+\\'" (dwell--uri file)))
          (should (equal (dwell--file (dwell--uri file)) (file-truename file))))
      (delete-directory directory t)))
  ;; A name in Latin-1 keeps its byte.
  (let ((file (decode-coding-string "/no/pr\351g.c" 'utf-8)))
    (should (equal (dwell--uri file) "file:///no/pr%E9g.c"))
    (should (equal (encode-coding-string (dwell--file (dwell--uri file)) 'utf-8) "/no/pr\351g.c")))
  (should-not (dwell--file "dwell:/listing")))

;;;; Lines

(ert-deftest dwell-lines-show-costs ()
  (dwell-test-with-costs
    (should (equal (dwell-test-overlays)
                   '((3 . "█▋   42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2 · 4.2 cycles/instr (ideal 0.50)")
                     (4 . "▎    5.0 % · 150 ms · waits for memory (DTLB miss) ← far.h:10 · ≥ 2.0 cycles/instr (ideal 0.50)"))))
    ;; the cause and whom to blame stand out
    (let ((text (overlay-get (car (dwell--overlays nil nil 'line)) 'after-string)))
      (should (equal '(dwell-cost dwell-culprit dwell-culprit dwell-cost)
                     (mapcar (lambda (words) (get-text-property (string-search words text) 'face text))
                             '("42 %" "waits" ":2" "4.2")))))
    (should (equal (dwell-test-overlays 'procedure)
                   '((1 . "47 % · 1.4 s · 3.9 cycles/instr (ideal 0.50) · sum(int*)"))))
    (should (equal (buffer-string) dwell-test-source))
    (should-not (buffer-modified-p))))

(ert-deftest dwell-lines-fit-their-window ()
  "Where room is short what is estimated goes, then the seconds, never the cause."
  (dwell-test-with-costs
    (let ((cost (overlay-get (car (dwell--overlays nil nil 'line)) 'dwell-cost)))
      (dolist (row '((nil . "42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2 · 4.2 cycles/instr (ideal 0.50)")
                     (91 . "42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2 · 4.2 cycles/instr (ideal 0.50)")
                     (90 . "42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2")
                     (58 . "42 % · memory (D-cache or DTLB miss) ← :2")
                     (10 . "42 % · memory (D-cache or DTLB miss) ← :2")))
        (let ((end (dwell--line-end cost (car row))))
          (should (equal (cdr row) (substring-no-properties end)))
          (should (eq 'dwell-culprit (get-text-property (string-search "memory" end) 'face end))))))
    ;; as wide as the window is
    (setq truncate-lines nil)
    (dwell--resized (selected-window))
    (should (<= (string-width (concat "  for (;;) total += *p;  " (cdar (dwell-test-overlays)))) (max 70 (window-body-width))))
    (should (string-match-p "D-cache or DTLB miss" (cdar (dwell-test-overlays))))))

(ert-deftest dwell-totals-show-the-change-since-the-previous-epoch ()
  (dwell-test-with-costs
    (dolist (row '(("slower" . "47 % · 1.4 s · 3.9 cycles/instr (ideal 0.50) · sum(int*) · +22.1% · slower ×2.00 · CPI 2.1→4.2")
                   ("noise" . "47 % · 1.4 s · 3.9 cycles/instr (ideal 0.50) · sum(int*) · as before")))
      (dwell-test-ask :fake/set (list :lens (car row)))
      (dwell-refresh)
      (dwell-test-until (car row) (equal (cdr row) (cdar (dwell-test-overlays 'procedure)))))
    ;; it is no line's, and of an edited procedure nothing is said
    (should (equal 2 (length (dwell-test-overlays))))
    (goto-char (point-min))
    (insert "x")
    (should (equal "edited · 47 % · 1.4 s · 3.9 cycles/instr (ideal 0.50) · sum(int*)"
                   (cdar (dwell-test-overlays 'procedure))))))

(ert-deftest dwell-lines-edited-earlier-are-marked ()
  "What was edited in the file since the program was built has no number that passes for its own."
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:stale [(:line 4 :share 0.2) (:line 1 :share 0.0001)] :rebuilt ["/bin/a.out"]))
    (dwell-refresh)
    (should (equal (dwell-test-until "the edited line" (and (= 3 (length (dwell-test-overlays))) (dwell-test-shares)))
                   '((3 . "42 %") (4 . "5.0 %") (5 . "edited · was 20 %"))))
    (should (string-match-p "rebuilt\\]" (dwell--lighter)))
    (should (string-match-p "/bin/a.out was built again since it was sampled" (get-text-property 0 'help-echo (dwell--lighter))))
    (goto-char (point-min))
    (forward-line 4)
    (should-error (dwell-goto-culprit) :type 'user-error)
    (insert "x")
    (delete-char -1) ; undoing does not make good what was measured for another text
    (should (equal "edited · was 20 %" (cdr (assoc 5 (dwell-test-shares)))))))

(ert-deftest dwell-hints-levels ()
  (dwell-test-with-costs
    (unwind-protect
        (progn
          (dwell-set-hints 'all)
          (should (equal (dwell-test-shares) '((3 . "42 %") (4 . "5.0 %") (5 . "0.1 %"))))
          (dwell-set-hints 'off)
          (should-not (dwell--overlays))
          (dwell-set-hints 'hot)
          (should (equal (dwell-test-shares) '((3 . "42 %") (4 . "5.0 %")))))
      (setq dwell-hints 'hot))))

(ert-deftest dwell-cursor-stays-before-cost ()
  (dwell-test-with-costs
    (let ((text (overlay-get (car (dwell--overlays nil nil 'line)) 'after-string)))
      (should (get-text-property 0 'cursor text)))))

(ert-deftest dwell-edits-keep-costs-on-their-lines ()
  "Each row: an edit, and what the lines show then."
  (dolist (row
           `((,(lambda () (goto-char (point-min)) (insert "// new\n")) ((4 . "42 %") (5 . "5.0 %")))
             (,(lambda () (forward-line 2) (insert "\n")) ((4 . "42 %") (5 . "5.0 %")))
             (,(lambda () (forward-line 2) (end-of-line) (insert "\n")) ((3 . "42 %") (5 . "5.0 %")))
             (,(lambda () (forward-line 2) (end-of-line) (insert " // x")) ((3 . "edited · was 42 %") (4 . "5.0 %")))
             (,(lambda () (forward-line 2) (insert "x")) ((3 . "edited · was 42 %") (4 . "5.0 %")))
             (,(lambda () (forward-line 2) (forward-char 4) (insert "\n")) ((3 . "edited · was 42 %") (5 . "5.0 %")))
             (,(lambda () (forward-line 2) (delete-region (point) (line-beginning-position 2))) ((3 . "5.0 %")))
             (,(lambda () (forward-line 2) (delete-region (point) (line-end-position))) ((4 . "5.0 %")))
             (,(lambda () (forward-line 2) (delete-char -1)) ((2 . "edited · was 42 %") (3 . "5.0 %")))
             (,(lambda () (forward-line 3) (delete-char -1)) ((3 . "edited · was 42 %")))
             (,(lambda () (forward-line 3) (transpose-lines 1)) ())
             (,(lambda () (erase-buffer)) ())
             (,(lambda () (let ((text (buffer-string))) (erase-buffer) (insert text))) ())
             (,(lambda () (narrow-to-region (point-min) 5) (insert "xx\n") (widen)) ((4 . "42 %") (5 . "5.0 %")))))
    (dwell-test-with-costs
      (goto-char (point-min))
      (funcall (car row))
      (let ((shown (dwell-test-shares)))
        ;; A line whose overlay was deleted with its text may show nothing, never another's cost.
        (should (equal shown (cadr row)))))))

(ert-deftest dwell-undo-restores-costs ()
  (dwell-test-with-costs
    (setq buffer-undo-list nil)
    (goto-char (point-min))
    (forward-line 2)
    (insert "x")
    (should (equal (dwell-test-shares) '((3 . "edited · was 42 %") (4 . "5.0 %"))))
    (primitive-undo 1 buffer-undo-list)
    (should (equal (dwell-test-shares) '((3 . "42 %") (4 . "5.0 %"))))))

(ert-deftest dwell-random-edits-never-misplace-a-cost ()
  "Whatever is done to a buffer, a fresh cost stands on a line with the measured text."
  (let ((dwell-hints 'all))
    (dwell-test-with-costs
      (random "dwell")
      (let ((measured '(("42 %" . "  for (;;) total += *p;") ("5.0 %" . "  p = p->next;") ("0.1 %" . "  return total;"))))
        (dotimes (_ 400)
          (goto-char (+ (point-min) (random (1+ (buffer-size)))))
          (pcase (random 5)
            (0 (insert (aref ["x" "\n" "  p = p->next;\n" "ü😀\n"] (random 4))))
            (1 (delete-region (point) (min (point-max) (+ (point) (random 6)))))
            (2 (delete-region (line-beginning-position) (line-end-position)))
            (3 (insert "\n"))
            (4 (ignore-errors (transpose-lines 1))))
          (pcase-dolist (`(,line . ,share) (dwell-test-shares))
            (unless (string-prefix-p "edited" share)
              (should (equal (cdr (assoc share measured))
                             (save-excursion (goto-char (point-min)) (forward-line (1- line))
                                             (buffer-substring (point) (line-end-position)))))))
          (should (= (length (dwell-test-overlays))
                     (length (delete-dups (mapcar #'car (dwell-test-overlays)))))))))))

(ert-deftest dwell-changes-are-sent-before-requests ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (insert "\n")
    (dwell--profile-changed (dwell--connection))
    ;; the script's costs stand on fixed lines of whatever text it has
    (should (equal (dwell-test-until "the new costs" (and (equal 3 (caar (dwell-test-shares))) (dwell-test-shares)))
                   '((3 . "42 %") (4 . "5.0 %"))))
    (should (equal (last (seq-remove (lambda (method) (member method '("dwell/epochs" "dwell/fileChanges")))
                                     (mapcar (lambda (message) (plist-get message :method))
                                             (dwell-test-ask :fake/messages)))
                         3)
                   '("textDocument/didChange" "dwell/fileCosts" "fake/messages")))))

(ert-deftest dwell-saving-requests-costs-again ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (insert "\n")
    (should (equal (dwell-test-shares) '((4 . "42 %") (5 . "5.0 %"))))
    (save-buffer)
    (dwell-test-until "the new costs" (equal 3 (caar (dwell-test-shares))))))

(ert-deftest dwell-hints-in-an-edited-buffer ()
  (dwell-test-with-costs
    (insert "\n")
    (unwind-protect
        (progn
          (dwell-set-hints 'all) ; the old costs must not be drawn on the new text
          (should (equal (dwell-test-shares) '((4 . "42 %") (5 . "5.0 %"))))
          (dwell-test-until "the new costs" (= 3 (length (dwell-test-shares)))))
      (setq dwell-hints 'hot))))

(ert-deftest dwell-late-answers-are-dropped ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:delayMs 200))
    (dwell--clear)
    (dwell--refresh)
    (insert "\n")
    (dwell-test-until "the answer" (null dwell--fetching))
    (should-not (dwell-test-overlays))
    (should dwell--outdated)
    (dwell-test-until "the next one" (dwell-test-overlays))))

(ert-deftest dwell-reverting-redraws ()
  (dwell-test-with-costs
    (write-region (concat "// one more line\n" dwell-test-source) nil buffer-file-name nil 'silent)
    (revert-buffer t t t)
    (should dwell-mode)
    (should (equal (dwell-test-until "overlays" (dwell-test-shares)) '((3 . "42 %") (4 . "5.0 %"))))
    (should (equal (dwell-test-ask :fake/text (list :uri dwell--document)) (buffer-string)))))

(ert-deftest dwell-turning-off-removes-everything ()
  (dwell-test-with-costs
    (let ((uri dwell--document) (hooks (length after-change-functions)))
      (dwell-mode -1)
      (should-not (dwell--overlays))
      (should (< (length after-change-functions) hooks))
      (should-not (dwell-test-ask :fake/text (list :uri uri))))))

(ert-deftest dwell-changing-the-major-mode-removes-everything ()
  (dwell-test-with-costs
    (let ((uri dwell--document))
      (fundamental-mode)
      (should-not (dwell--overlays))
      (should-not (dwell-test-ask :fake/text (list :uri uri))))))

(ert-deftest dwell-moving-between-lines ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (dwell-next-line)
    (should (= 3 (line-number-at-pos)))
    (dwell-next-line)
    (should (= 4 (line-number-at-pos)))
    (should-error (dwell-next-line) :type 'user-error)
    (should-error (dwell-goto-culprit) :type 'user-error) ; far.h is not here
    (dwell-hottest-line)
    (should (= 3 (line-number-at-pos)))
    (dwell-goto-culprit)
    (should (= 2 (line-number-at-pos)))
    (should-error (dwell-goto-culprit) :type 'user-error)))

(ert-deftest dwell-links-in-a-text ()
  (with-temp-buffer
    (insert "before\n")
    ;; a clef is two units of UTF-16
    (dwell--insert-linked "𝄞 42% of my_file.c:3, more" [(:start 10 :end 21 :uri "file:///my_file.c" :line 2)])
    (goto-char (point-min))
    (search-forward "my_file")
    (let ((button (button-at (match-beginning 0))))
      (should (equal "my_file.c:3" (button-label button)))
      (should (equal "/my_file.c:3" (button-get button 'help-echo))))
    (should-not (button-at (1- (match-beginning 0))))))

(ert-deftest dwell-legend-explains-the-numbers ()
  (dwell-test-with-costs
    (save-window-excursion
      (dwell-describe-line)
      (dwell-test-until "help" (get-buffer "*Dwell line*"))
      (with-current-buffer "*Dwell line*"
        (goto-char (point-min))
        (search-forward "What do")
        (push-button (match-beginning 0)))
      (dwell-test-until "the legend" (get-buffer "*Dwell legend*"))
      (with-current-buffer "*Dwell legend*"
        (should (string-prefix-p "What do these numbers mean?\n\npart   meaning\n28 %   The share of all time.\n" (buffer-string)))
        (should (equal 'bold (get-text-property (point-min) 'face)))))))

(ert-deftest dwell-eldoc-and-help ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (should-not (dwell-eldoc-function #'ignore))
    (forward-line 2)
    (let (told)
      (dwell-eldoc-function (lambda (text &rest _) (setq told text)))
      (should (equal told (concat "42 % · 1.3 s · waits for memory (D-cache or DTLB miss) ← :2 (up to 90%); waits for a mispredicted branch (up to 10%)"
                                  " · 421 samples of cpu-clock")))
      (forward-line 1)
      (dwell-eldoc-function (lambda (text &rest _) (setq told text)))
      (should (equal told "5.0 % · 150 ms · waits for memory (DTLB miss) ← far.h:10 · ≥ 2.0 cycles/instr (ideal 0.50)"))
      (forward-line -1))
    (save-window-excursion
      (dwell-describe-line)
      (dwell-test-until "help" (get-buffer "*Dwell line*"))
      (with-current-buffer "*Dwell line*"
        (should (string-match-p "line 2 waits for memory ← line 2 in sum" (buffer-string)))
        ;; a culprit's line and the listing are links
        (goto-char (point-max))
        (search-backward "sum")
        (push-button)
        (dwell-test-until "the listing" (equal (buffer-name (window-buffer)) "*Dwell listing: a.out:sum*"))
        (with-current-buffer (window-buffer) (should (= 7 (line-number-at-pos))))
        (goto-char (point-max))
        (search-backward "line 2")
        (push-button))
      (should (equal (buffer-file-name (window-buffer)) file)))))

;;;; Document sync

(ert-deftest dwell-server-follows-random-edits ()
  "After any edits the server's text is the buffer's, for each kind of sync."
  (dolist (kind '("1" "2"))
    (let ((process-environment (cons (concat "FAKE_SYNC=" kind) process-environment)))
      (dwell-test-with-file "a.c" "a😀b\nüü\n\n𝒳𝒴\n"
        (dwell-test-until "readiness" (dwell--document-live-p))
        (random "dwell sync")
        (dotimes (i 120)
          (goto-char (+ (point-min) (random (1+ (buffer-size)))))
          (pcase (random 7)
            ((or 0 1) (insert (aref ["x" "\n" "😀" "a\nb\n" "ü"] (random 5))))
            (2 (delete-region (point) (min (point-max) (+ (point) (random 9)))))
            (3 (upcase-region (line-beginning-position) (line-end-position)))
            (4 (subst-char-in-region (point-min) (point-max) ?x ?y))
            (5 (save-restriction (narrow-to-region (point) (point-max)) (insert "n")))
            (6 (ignore-errors (transpose-lines 1))))
          (when (zerop (% i 10))
            (dwell--send-changes)
            (should (equal (dwell-test-ask :fake/text (list :uri dwell--document)) (buffer-string)))))))))

(ert-deftest dwell-changes-are-batched ()
  (dwell-test-with-costs
    (dotimes (_ 5) (insert "x"))
    (dwell-test-until "the change to be sent" (null dwell--changes))
    (let ((changes (seq-filter (lambda (message) (equal (plist-get message :method) "textDocument/didChange"))
                               (dwell-test-ask :fake/messages))))
      (should (= 1 (length changes)))
      (should (= 5 (length (plist-get (plist-get (car changes) :params) :contentChanges)))))))

(ert-deftest dwell-raw-bytes-do-not-break-the-connection ()
  (dwell-test-with-file "a.c" "x\n"
    (dwell-test-until "readiness" (dwell--document-live-p))
    (insert (string #x3fffff) "ü" (string #xd800))
    (dwell--send-changes)
    (should (equal (dwell-test-ask :fake/text (list :uri dwell--document)) "\uFFFDü\uFFFDx\n"))))

(ert-deftest dwell-renaming-reopens ()
  (dwell-test-with-costs
    (let ((old dwell--document))
      (write-file (expand-file-name "b.c"))
      (dwell-test-until "the new document" (dwell-test-ask :fake/text (list :uri dwell--document)))
      (should-not (equal old dwell--document))
      (should-not (dwell-test-ask :fake/text (list :uri old))))))

;;;; Epochs

(ert-deftest dwell-profile-changes-are-followed ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:round 3))
    (dwell-test-ask :fake/notify '(:method "dwell/profileDidChange" :params (:epochs ["x"])))
    (dwell-test-until "the new costs" (equal "45 %" (cdar (dwell-test-shares))))))

(ert-deftest dwell-hidden-buffers-are-refreshed-when-shown ()
  (dwell-test-with-costs
    (let ((buffer (current-buffer)))
      (switch-to-buffer "*scratch*")
      (with-current-buffer buffer (dwell-test-ask :fake/set '(:round 3)))
      (with-current-buffer buffer (dwell-test-ask :fake/notify '(:method "dwell/profileDidChange" :params (:epochs ["x"]))))
      (with-current-buffer buffer
        (dwell-test-until "the mark" dwell--outdated)
        (dwell-test-until "the timer" (null dwell--refresh-timer))
        (dwell-test-settle)
        (should (equal "42 %" (cdar (dwell-test-shares)))))
      (switch-to-buffer buffer)
      (run-hook-with-args 'window-buffer-change-functions (selected-window))
      (dwell-test-until "the new costs" (equal "45 %" (cdar (dwell-test-shares)))))))

(ert-deftest dwell-mode-line-names-the-epochs ()
  (dwell-test-with-costs
    (dwell-test-until "the epochs" (dwell--selected (dwell--connection)))
    (should (equal (substring-no-properties (dwell--lighter)) " Dwell[20261121T100000Z]"))
    (should (equal (get-text-property 0 'help-echo (dwell--lighter))
                   (concat "Recordings: 20261121T100000Z\nThe source is fresh\n3 samples were lost\n"
                           "mouse-1: select recordings, mouse-2: hot functions")))))

(ert-deftest dwell-mode-line-reports-missing-epochs ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:epochs [] :selected ["latest"]))
    (dwell-test-ask :fake/notify '(:method "dwell/profileDidChange" :params (:epochs [])))
    (dwell-test-until "the mode line" (equal (substring-no-properties (dwell--lighter)) " Dwell[no recordings]"))
    (should-error (call-interactively #'dwell-select-epoch) :type 'user-error)))

(ert-deftest dwell-selecting-epochs ()
  (dwell-test-with-costs
    (let (annotations)
      (cl-letf (((symbol-function 'completing-read-multiple)
                 (lambda (_prompt table &rest _)
                   (let* ((metadata (completion-metadata "" table nil))
                          (annotate (completion-metadata-get metadata 'annotation-function)))
                     (should (equal (all-completions "" table) '("latest" "20261121T100000Z" "before")))
                     (setq annotations (mapcar annotate '("20261121T100000Z" "before")))
                     '("before" "20261121T100000Z")))))
        (call-interactively #'dwell-select-epoch))
      (should (equal annotations '("  2026-11-21 10:00 (running)  1000 samples, 3 lost  ./a.out  testhost"
                                   "  2026-11-20 09:00  1000 samples, 3 lost  ./a.out  testhost"))))
    (dwell-test-until "the selection"
      (equal (dwell--selected (dwell--connection)) '("before" "20261121T100000Z")))
    (should (equal (substring-no-properties (dwell--lighter)) " Dwell[before+20261121T100000Z]"))))

(ert-deftest dwell-recording ()
  (dwell-test-with-costs
    (let ((said (dwell-test-messages
                  (dwell-record '("./a.out" "two words") "mine")
                  (should dwell--recording)
                  (should (string-match-p "recording" (dwell--lighter)))
                  (should-error (dwell-record '("again")) :type 'user-error)
                  (dwell-test-until "the recording" (null dwell--recording)))))
      (should (equal said '("Dwell: recording ./a.out two words" "Dwell: 0% recording ./a.out two words" "Dwell: 40% 50 samples"
                            "Dwell: made recording recorded-1; the output is in *Dwell output*"))))
    (with-current-buffer "*Dwell output*"
      (should (equal (buffer-string) (format "ran ./a.out|two words in %s\n" directory))))
    (dwell-test-until "the new costs" (equal "43 %" (cdar (dwell-test-shares))))))

(ert-deftest dwell-recording-is-cancelled ()
  (dwell-test-with-costs
    (should-error (dwell-record-cancel) :type 'user-error)
    (dwell-record '("forever"))
    (dwell-test-until "progress" (equal "40% 50 samples" (plist-get dwell--recording :progress)))
    (let ((said (dwell-test-messages
                  (dwell-record-cancel)
                  (dwell-test-until "the end" (null dwell--recording)))))
      (should (equal said '("Dwell: cancelling the recording" "Dwell: not recorded: cancelled"))))))

(ert-deftest dwell-new-epoch-is-requested ()
  (dwell-test-with-costs
    (dwell-new-epoch "evening")
    (dwell-test-settle)
    (should (seq-find (lambda (message)
                        (equal (plist-get message :params)
                               '(:command "dwell.server.newEpoch" :arguments [(:name "evening")])))
                      (dwell-test-ask :fake/messages)))))

;;;; Hot list

(defun dwell-test-hot-buffer ()
  "Return the hot list's buffer."
  (seq-find (lambda (buffer) (string-prefix-p "*Dwell hot" (buffer-name buffer))) (buffer-list)))

(ert-deftest dwell-hot-list ()
  (dwell-test-with-costs
    (dwell-hot-procedures)
    (with-current-buffer (dwell-test-hot-buffer)
      (dwell-test-until "rows" (> (buffer-size) 0))
      (dwell-test-until "what is dear to know of the rows in sight"
        (string-match-p (rx bol "  █▉    47.2%   47.2%   944 M    1.9      472 sum(int*) " (+ " ") "20/10/70 " (+ " ") "a.out")
                        (buffer-string)))
      ;; a bound says so
      (should (string-match-p " ≥4\\.2 .* memcpy " (buffer-string)))
      (should (string-match-p "by function: 20261121T100000Z" mode-line-process))
      ;; point keeps to its row
      (goto-char (point-min))
      (search-forward "memcpy")
      (revert-buffer)
      (dwell-test-settle)
      (should (equal (tabulated-list-get-id) "libc.so.6:memcpy"))
      ;; least first by share, then filtered
      (tabulated-list-sort 0)
      (goto-char (point-min))
      (should (equal (tabulated-list-get-id) "libc.so.6:memcpy"))
      (dwell-table-filter "^sum")
      (should (= 1 (count-lines (point-min) (point-max))))
      (should (equal (dwell-test-messages (dwell-table-notes))
                     '("7 more rows (`dwell-hot-limit')\nimage gone: /tmp/x")))
      (dwell-hot-by-line)
      (dwell-test-until "lines" (string-match-p "the only line" (buffer-string)))
      (should-error (dwell-hot-listing) :type 'user-error)
      (dwell-hot-by-procedure)
      (dwell-test-until "procedures" (string-match-p "memcpy" (buffer-string)))
      (goto-char (point-min))
      (save-window-excursion
        (dwell-hot-visit)
        (should (equal (buffer-file-name (window-buffer)) file)))
      ;; without source, the listing
      (forward-line 1)
      (dwell-hot-visit)
      (dwell-test-until "the listing" (equal (buffer-name (window-buffer)) "*Dwell listing: libc.so.6:memcpy*")))))

(ert-deftest dwell-hot-list-requests-details-of-visible-rows ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:many 400))
    (dwell-hot-procedures)
    (with-current-buffer (dwell-test-hot-buffer)
      (cl-flet ((asked () (cl-loop for message across (dwell-test-ask :fake/messages)
                                   for params = (plist-get message :params)
                                   when (and (equal "dwell/hotProcedures" (plist-get message :method))
                                             (eq t (plist-get params :split)))
                                   collect (plist-get params :offset))))
        (dwell-test-until "rows" (= 400 (length tabulated-list-entries)))
        (dwell-test-until "details" (string-match-p "20/10/70" (buffer-string)))
        (should (equal (asked) '(0)))
        (goto-char (point-min))
        (forward-line 320)
        (set-window-start (get-buffer-window) (point))
        (run-hook-with-args 'window-scroll-functions (get-buffer-window) (point))
        (dwell-test-until "the next page" (member 300 (asked)))
        (should (equal "p320" (tabulated-list-get-id)))
        ;; by what only details tell, all are asked for
        (setq tabulated-list-sort-key '("CPI" . t))
        (run-hooks 'post-command-hook)
        (dwell-test-until "all pages" (= 8 (length (asked))))))))

(ert-deftest dwell-hot-list-follows-the-profile ()
  (dwell-test-with-costs
    (dwell-hot-procedures)
    (with-current-buffer (dwell-test-hot-buffer)
      (dwell-test-until "rows" (> (buffer-size) 0))
      (dwell-select-epoch '("before"))
      (dwell-test-until "the other epoch" (string-match-p "by function: before" mode-line-process)))))

;;;; Listing

(ert-deftest dwell-listing-buffer ()
  (dwell-test-with-costs
    (goto-char (point-min))
    (forward-line 3)
    (call-interactively #'dwell-listing)
    (dwell-test-until "the listing" (equal (buffer-name (window-buffer)) "*Dwell listing: a.out:sum*"))
    (with-current-buffer (window-buffer)
      (should (equal (line-number-at-pos) 6)) ; the first of source line 4
      (should (string-match-p "100%% of it" header-line-format))
      (should (equal (cl-loop for line from 1 to 10
                              collect (progn (goto-char (point-min)) (forward-line (1- line))
                                             (get-text-property (point) 'face)))
                     '( dwell-listing-block dwell-listing-source default dwell-listing-bubble dwell-listing-stalled
                        dwell-listing-source default dwell-listing-bubble dwell-listing-bubble dwell-listing-stalled)))
      (goto-char (point-min))
      (dwell-listing-next-stall)
      (should (= 4 (line-number-at-pos)))
      (dwell-listing-goto-culprit)
      (should (= 3 (line-number-at-pos)))
      (goto-char (point-min))
      (dwell-listing-next-stall 2)
      (should (= 8 (line-number-at-pos)))
      (should-error (dwell-listing-goto-culprit) :type 'user-error)
      (should-error (dwell-listing-next-stall) :type 'user-error)
      (should (= 8 (line-number-at-pos)))
      (goto-char (point-max))
      (dwell-listing-previous-stall)
      (should (= 8 (line-number-at-pos)))
      (forward-line 2)
      (revert-buffer)
      (dwell-test-settle)
      (should (= 10 (line-number-at-pos)))
      (dwell-listing-visit))
    (should (equal (buffer-file-name (window-buffer)) file))
    (should (= 5 (line-number-at-pos)))))

(ert-deftest dwell-listing-of-a-chosen-procedure ()
  (dwell-test-with-costs
    (goto-char (point-max))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_prompt table &rest _)
                 (should (equal (all-completions "" table) '("a.out:sum" "libc.so.6:memcpy")))
                 "libc.so.6:memcpy")))
      (call-interactively #'dwell-listing))
    (dwell-test-until "the listing" (equal (buffer-name (window-buffer)) "*Dwell listing: libc.so.6:memcpy*"))))

(ert-deftest dwell-listing-that-fails-leaves-no-buffer ()
  (dwell-test-with-costs
    (dwell-test-ask :fake/set '(:error (:dwell/listing (:code -32001 :message "no procedure named nix"))))
    (should (equal (dwell-test-messages
                     (dwell-listing "nix")
                     (dwell-test-until "the end" (not (get-buffer "*Dwell listing: nix*"))))
                   '("Dwell: no procedure named nix")))))

(provide 'dwell-test)
;;; dwell-test.el ends here
