;;; dwell.el --- What each source line costs, where it stalls and why  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; Author: The Dwell authors
;; Maintainer: The Dwell authors
;; URL: https://example.invalid/dwell
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, languages, c
;; SPDX-License-Identifier: MIT OR Apache-2.0

;; Licensed under the MIT License or the Apache License 2.0, at your choice.

;;; Commentary:

;; Dwell samples programs as they run and works out, for each instruction, how often it was
;; executed, how long it waited and what for.  This package shows that on the lines you edit, in a
;; list of hot procedures and in listings of their instructions.  It talks to `dwell-lsp' over a
;; connection of its own, so it goes with Eglot, lsp-mode or neither, and takes no place of theirs.
;;
;; Setting up
;;
;;     (add-hook 'c-mode-hook #'dwell-mode)        ; or
;;     (global-dwell-mode)                         ; all programs' sources
;;     (define-key dwell-mode-map (kbd "C-c '") dwell-command-map)
;;
;; Node 20 and the server must be there: a `dwell-lsp' on PATH, or a checkout of Dwell that was
;; built (`npm start' there builds it) beside this file.  `dwell-server-command' names another.
;; A server is started when the first file of a project is opened with `dwell-mode' on.
;;
;; On lines
;;
;; At the end of a line stand its share of the epoch's time as a bar and in percent, the CPU time,
;; what the line waited for and which line is to blame, and, where it is known how often the line
;; ran, the cycles per instruction beside the ideal, which is what they would be without stalls.
;; Causes that cannot be told apart stand together.  `≥' before cycles is a lower bound.  Where a
;; window is narrow the cycles go first.  Point on the line shows more in the echo area (eldoc).
;; Above a procedure stand its totals and what changed since the epoch before; a click on them opens
;; its listing.  `M-x dwell-legend' explains all these numbers.
;;
;; Type on: a cost never moves what you type.  A line that was edited since it was measured says
;; `edited' (undo restores its cost), and all lines are looked up again when you save.
;; A source that changed since the program was built is mapped by the server; a line that was edited
;; says so, and never shows another's number.
;;
;;     M-x dwell-set-hints         no lines, hot lines (`dwell-hot-percent') or all
;;     M-x dwell-next-line, dwell-previous-line, dwell-hottest-line
;;     M-x dwell-goto-culprit      to the line that this one's cost is blamed on
;;     M-x dwell-describe-line     all that is known of this line; its links lead to culprits and listings
;;     M-x dwell-listing           the instructions of the procedure here, or of any
;;     M-x dwell-refresh           ask again
;;
;; With `dwell-diagnostics' severe stalls that could be avoided are among the notes of Flymake, the
;; culprit's place beside them.  `dwell-source-map' says where sources lie that were built elsewhere.
;;
;; Lines that cost 2% or more are marked in the fringe, redder from 10% on.  The faces, and what is
;; shown, are in `M-x customize-group RET dwell'.
;;
;; Epochs
;;
;; An epoch is one recording.  The mode line names the epochs that are shown, as in
;; `Dwell[latest]'; `stale' there says that the file changed too much to be mapped, `rebuilt' that the
;; program was built again since it was sampled.
;;
;;     M-x dwell-epochs            all of them, as a list
;;     M-x dwell-select-epoch      show one or, with commas, several, which are merged
;;     M-x dwell-record            run a command and record it; C-u asks for the epoch's name
;;     M-x dwell-record-process    record a process that runs
;;     M-x dwell-import-perf       make an epoch of a perf.data file
;;     M-x dwell-record-cancel     end it
;;     M-x dwell-export-report     write an HTML page about what is shown
;;     M-x dwell-new-epoch         have the running daemon begin a new epoch
;;
;; In the list `*' stands before what is shown and `b' before what it is compared with.  RET shows
;; the epoch at point, or those marked with `m'; `=' lists what changed between two marked ones, or
;; from that at point to those shown; `b' shows the changes since it on the lines, `B' ends that;
;; `R' renames, `D' removes after asking, `+', `r', `P' and `i' make new ones.
;;
;; Before and after
;;
;; `M-x dwell-compare' asks for the epochs to compare with.  From then on the end of a line shows what
;; changed there: the change as a part of all time, its kind (slower, faster, ran more often, ran less
;; often, new, gone) with its factor, and both CPIs.  A change that may be chance is grey.
;; `M-x dwell-compare-end' shows the costs alone again.
;;
;; `M-x dwell-diff' lists the same, the largest change first.  `P' and `L' list procedures and
;; lines, `a' also what may be chance, `d' says all that is known of a change.  RET visits a line;
;; on a procedure it shows the instructions of both builds side by side, aligned, where `n' and `p'
;; move between those that changed and RET visits the source.
;;
;; Summary
;;
;; `M-x dwell-summary' says where the cycles of the procedure at point go, C-u where all of them go:
;; a cause has a range, since an instruction's wait may have several.  In the bar what it explains
;; at least is solid, what it may explain at most is light.
;;
;; Callers
;;
;; `M-x dwell-callers' shows who calls the function at point, by the call stacks of its samples, and
;; `M-x dwell-callees' what it calls: a tree, all of whose shares are parts of the function's samples.
;; TAB unfolds a row, RET and `o' visit the line of its call, `^' goes up, `t' turns callers into
;; callees and back.
;;
;; Hot procedures
;;
;; `M-x dwell-hot-procedures' lists where the time goes; a procedure's cycles are split into execution,
;; static and dynamic stalls.  RET visits the source, or the listing
;; where there is none, `o' does so in another window, `l' shows the listing, `s' the summary, `g'
;; asks again, `/' filters, `S' sorts by the column at point; `P', `I', `L', `A' list by procedure,
;; image, line or application, `?' says what was left out, `e' chooses epochs, `E' lists them, `='
;; lists what changed.  It follows the profile by itself and keeps the row at point.
;;
;; Listings
;;
;; Bubbles above an instruction say how long it stalled and why.  `n' and `p' move between stalls,
;; `j' to the culprit (C-u C-SPC comes back), `M-.' to the address at point or to what wrote the
;; register there, RET or `o' to the source;
;; `M-x dwell-listing' on a source line comes from there.  TAB folds a basic block, S-TAB all of
;; them, `s' shows the summary, `c' the control-flow graph, `g' asks again.
;;
;; Control-flow graph
;;
;; `M-x dwell-graph' draws the basic blocks of a procedure and where control goes between them: a
;; picture in the theme's colours where Emacs shows SVG, which `+', `-' and `0' zoom, else words with
;; the edges beside them (`t' switches).  `n' and `p' move from block to block, `j' to where control
;; goes most often, `h' to the hottest; RET shows the block in the listing.
;;
;; SQL
;;
;; `M-x dwell-sql' runs a query in SQL over all recordings, that of the region or one to type, and lists
;; its rows.  `e' changes the query, `g' runs it again, `k' cancels it.  `SHOW TABLES' lists the tables.
;;
;; Counted calls
;;
;; `M-x dwell-count-calls' counts the calls of the function at point in a running program and lists its
;; call paths, with exact numbers, once a second.  RET visits the call, `i' counts the caller, too, `s'
;; stops; what has ended is forgotten by another `s'.
;;
;; Trouble
;;
;; `M-x dwell-restart' starts the server again, `M-x dwell-server-log' shows what it wrote on
;; standard error.  Files on other machines (TRAMP) are left alone.

;;; Code:

(require 'dwell-client)
(require 'dwell-sync)
(require 'dwell-lines)
(require 'dwell-describe)
(require 'dwell-epoch)
(require 'dwell-hot)
(require 'dwell-listing)
(require 'dwell-epoch-list)
(require 'dwell-diff)
(require 'dwell-diff-listing)
(require 'dwell-summary)
(require 'dwell-callers)
(require 'dwell-graph)
(require 'dwell-sql)
(require 'dwell-calls)
(require 'dwell-flymake)
(require 'easymenu)

(defvar dwell-command-map
  (let ((map (make-sparse-keymap)))
    (pcase-dolist (`(,key . ,command)
                   '(("h" . dwell-hot-procedures) ("l" . dwell-listing) ("e" . dwell-select-epoch)
                     ("r" . dwell-record) ("k" . dwell-record-cancel) ("N" . dwell-new-epoch)
                     ("E" . dwell-epochs) ("=" . dwell-diff) ("s" . dwell-summary) ("u" . dwell-callers) ("U" . dwell-callees) ("G" . dwell-graph) ("q" . dwell-sql) ("I" . dwell-count-calls) ("c" . dwell-compare)
                     ("C" . dwell-compare-end) ("P" . dwell-record-process) ("i" . dwell-set-hints) ("d" . dwell-describe-line) ("?" . dwell-legend) ("." . dwell-goto-culprit)
                     ("n" . dwell-next-line) ("p" . dwell-previous-line) ("t" . dwell-hottest-line)
                     ("g" . dwell-refresh)))
      (define-key map key command))
    map)
  "Keymap of Dwell's commands, for a prefix key of your choice.")

(defvar dwell-mode-map (make-sparse-keymap)
  "Keymap of `dwell-mode'; it binds nothing by itself.")

(easy-menu-define dwell-menu dwell-mode-map
  "Menu of Dwell."
  '("Dwell"
    ["Hot functions" dwell-hot-procedures]
    ["Listing…" dwell-listing]
    ["Summary…" dwell-summary]
    ["Callers" dwell-callers]
    ["Callees" dwell-callees]
    ["Control-flow graph…" dwell-graph]
    ["Query in SQL…" dwell-sql]
    ["Count calls now…" dwell-count-calls]
    ["Stop counting calls" dwell-stop-counting]
    "--"
    ["Recordings" dwell-epochs]
    ["Select recordings…" dwell-select-epoch]
    ["Compare with…" dwell-compare]
    ["Compare no more" dwell-compare-end]
    ["What changed…" dwell-diff]
    "--"
    ["Record a command…" dwell-record]
    ["Record a process…" dwell-record-process]
    ["Import perf.data…" dwell-import-perf]
    ["Cancel the recording" dwell-record-cancel :active dwell--recording]
    ["Export an HTML report…" dwell-export-report]
    ["New recording…" dwell-new-epoch]
    "--"
    ["Which lines…" dwell-set-hints]
    ["Hottest line" dwell-hottest-line]
    ["Culprit of this line" dwell-goto-culprit]
    ["Describe this line" dwell-describe-line]
    ["What do these numbers mean?" dwell-legend]))

(defvar dwell-lighter-map
  (let ((map (make-sparse-keymap)))
    (define-key map [mode-line mouse-1] #'dwell-select-epoch)
    (define-key map [mode-line mouse-2] #'dwell-hot-procedures)
    map)
  "Keymap of the mode line's `Dwell'.")

;;;###autoload
(define-minor-mode dwell-mode
  "Show what each line of this buffer's file costs.
The manual is in the package's commentary: \\[finder-commentary] RET dwell.

\\{dwell-command-map}"
  :lighter (:eval (dwell--lighter))
  (cond ((not dwell-mode) (dwell--turn-off))
        ((dwell--file-p) (dwell--turn-on))
        (t (setq dwell-mode nil)
           (user-error "Dwell: %s visits no local file" (buffer-name)))))

(defun dwell--file-p ()
  "Return non-nil if this buffer visits a local file.
Which mode it has is left to who turns `dwell-mode' on: plain Emacs
has none for some languages, Rust among them."
  (and buffer-file-name (not (file-remote-p buffer-file-name))))

(defun dwell--turn-on-maybe ()
  "Turn `dwell-mode' on if this buffer has a program's source."
  (when (and (dwell--file-p) (derived-mode-p 'prog-mode)) (dwell-mode)))

;;;###autoload
(define-globalized-minor-mode global-dwell-mode dwell-mode dwell--turn-on-maybe
  :group 'dwell
  :predicate '(prog-mode))

(defconst dwell--hooks
  '((before-change-functions . dwell--note-before)
    (after-change-functions . dwell--note-after)
    (after-change-functions . dwell--settle)
    (after-save-hook . dwell--saved)
    (before-revert-hook . dwell--leave)
    (after-revert-hook . dwell--enter)
    (after-set-visited-file-name-hook . dwell--enter)
    (kill-buffer-hook . dwell--leave)
    (change-major-mode-hook . dwell--turn-off)
    (window-buffer-change-functions . dwell--window-shows)
    (window-size-change-functions . dwell--resized)
    (eldoc-documentation-functions . dwell-eldoc-function))
  "What `dwell-mode' hooks into, in its buffer.")

(defun dwell--turn-on ()
  "Watch this buffer and show its costs."
  (pcase-dolist (`(,hook . ,function) dwell--hooks)
    (add-hook hook function t t))
  (when dwell-diagnostics (add-hook 'flymake-diagnostic-functions #'dwell-flymake nil t))
  (dwell--enter))

(defun dwell--turn-off ()
  "Watch this buffer no more and remove what is shown."
  (pcase-dolist (`(,hook . ,function) dwell--hooks)
    (remove-hook hook function t))
  (remove-hook 'flymake-diagnostic-functions #'dwell-flymake t)
  (setq dwell-flymake--published [])
  (dwell--leave)
  (setq dwell--buffer-key nil))

(defvar dwell--missing-said nil
  "What is missing, as the user was informed.")

(defun dwell--enter ()
  "Open this buffer's file at the server and ask for its costs."
  (dwell--leave)
  (if (not (dwell--file-p))
      (dwell-mode -1)
    ;; Visiting a file must not fail for want of a server, nor be nagged about it.
    (condition-case err
        (progn (dwell--open-document)
               (dwell--refresh))
      (user-error
       (let ((text (error-message-string err)))
         (unless (equal text dwell--missing-said)
           (setq dwell--missing-said text)
           (message "%s" text)))))))

(defun dwell--leave ()
  "Close this buffer's file at the server and remove its costs."
  (dwell--close-document)
  (setq dwell--costs nil dwell--differences nil dwell--since nil dwell--fetching nil dwell--outdated nil)
  (dwell--clear))

(defun dwell--saved ()
  "Notify the server that this buffer was saved, and ask for its costs again."
  (dwell--saved-document)
  (dwell--refresh))

;;;; The mode line

(defun dwell--lighter ()
  "Return what the mode line shows."
  (let ((connection dwell--document-connection))
    (propertize
     (pcase (and connection (dwell--state connection))
       ('ready (format " Dwell[%s%s%s]" (dwell--epochs-named (dwell--baseline connection) " → ")
                       (dwell--epochs-named (or (dwell--selected connection) dwell-epochs))
                       (dwell--remark)))
       ('starting " Dwell[…]")
       (_ " Dwell:off"))
     'help-echo (dwell--lighter-help connection)
     'mouse-face 'mode-line-highlight
     'local-map dwell-lighter-map)))

(defun dwell--epochs-named (labels &optional suffix)
  "Return LABELS of recordings for the mode line, then SUFFIX; nothing for none."
  (if labels
      (concat (replace-regexp-in-string "%" "%%" (string-join labels "+") t t) suffix)
    ""))

(defun dwell--remark ()
  "Return what must be known of this buffer's costs, in a word."
  (cond ((and dwell--recording (eq dwell--document-connection
                                   (plist-get dwell--recording :connection)))
         " recording")
        ((equal (plist-get dwell--costs :source) "stale") " stale")
        ((not (seq-empty-p (plist-get dwell--costs :rebuilt))) " rebuilt")
        (t "")))

(defun dwell--lighter-help (connection)
  "Return what the mouse on the mode line shows of CONNECTION."
  (string-join
   (append (mapcar (lambda (program) (format "%s was built again since it was sampled: M-x dwell-record" program))
                   (plist-get dwell--costs :rebuilt))
           (and connection (eq 'stopped (dwell--state connection))
                '("The server stopped: M-x dwell-restart"))
           (and connection (equal '("no recordings") (dwell--selected connection))
                '("The database is empty: M-x dwell-record makes a recording"))
           (and dwell--costs
                (list (format "Recordings: %s" (string-join (append (plist-get dwell--costs :epochs) nil) " + "))
                      (format "The source is %s" (plist-get dwell--costs :source))))
           (append (plist-get dwell--costs :notes) nil)
           '("mouse-1: select recordings, mouse-2: hot functions"))
   "\n"))

;;;; Notifications of the server

(defun dwell--on-notification (connection method _params)
  "Follow the profile when METHOD says that CONNECTION's changed."
  (when (eq method 'dwell/profileDidChange)
    (dwell--note-selected connection)
    (dwell--profile-changed connection)))

(defun dwell--on-selected (connection)
  "Ask again if CONNECTION's files were compared with other recordings than now."
  (unless (equal (dwell--baseline connection) (dwell--compared connection))
    (setf (dwell--compared connection) (dwell--baseline connection))
    (dwell--profile-changed connection)))

(defun dwell--on-ready (connection)
  "Open the files again that were open at the server before CONNECTION's."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (and dwell-mode (equal (dwell--key connection) dwell--buffer-key)
                 (not (eq connection dwell--document-connection)))
        (dwell--enter)))))

(defun dwell--on-stopped (connection)
  "Remove what was shown of CONNECTION's server."
  (dolist (buffer (buffer-list))
    (with-current-buffer buffer
      (when (eq connection dwell--document-connection)
        (setq dwell--costs nil dwell--fetching nil)
        (dwell--clear))))
  (force-mode-line-update t))

(add-hook 'dwell-notification-functions #'dwell--on-notification)
(add-hook 'dwell-ready-functions #'dwell--on-ready)
(add-hook 'dwell-selected-functions #'dwell--on-selected)
(add-hook 'dwell-stopped-functions #'dwell--on-stopped)

(provide 'dwell)
;;; dwell.el ends here
