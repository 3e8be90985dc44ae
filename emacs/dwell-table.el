;;; dwell-table.el --- What Dwell's lists have in common  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: rows of an answer.  Out: a tabulated list that can be filtered and that, when its rows come
;; anew, keeps the order, the row at point and what each window shows.  What a row says and does is
;; left to the lists that derive from it.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'tabulated-list)

(defvar-local dwell-table--rows nil
  "Rows as the server gave them.")

(defvar-local dwell-table--by-id nil
  "The same by id, a hash table.")

(defvar-local dwell-table--filter nil
  "Regexp that the rows shown match, or nil.")

(defvar-local dwell-table--title ""
  "What the list is of, for the mode line.")

(defvar-local dwell-table--id-function (lambda (row) (plist-get row :id))
  "Function that returns the id of a row.")

(defvar-local dwell-table--entry-function nil
  "Function that returns the vector of columns of a row.")

(defvar-local dwell-table--row-function #'identity
  "Function that returns a row with all that is known of it by now.")

(defvar-local dwell-table--notes nil
  "What one must know to read the list.")

(defvar-local dwell-table--empty-function (lambda () "Nothing is there.")
  "Function that says in words why the list has no rows, and what to do.")

(defvar dwell-table-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map "/" #'dwell-table-filter)
    (define-key map "?" #'dwell-table-notes)
    map)
  "Keymap that Dwell's lists share.")

(define-derived-mode dwell-table-mode tabulated-list-mode "Dwell"
  "Parent of Dwell's lists."
  :interactive nil
  (setq tabulated-list-padding 1)
  (setq-local revert-buffer-function (lambda (&rest _) (funcall dwell--revisit-function)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

(defun dwell-table--show (rows format &optional notes)
  "Show ROWS in columns of FORMAT; NOTES say how to read them."
  (setq dwell-table--rows rows
        dwell-table--notes (append notes nil)
        dwell-table--by-id (make-hash-table :test #'equal)
        tabulated-list-format format)
  (seq-doseq (row rows)
    (puthash (funcall dwell-table--id-function row) row dwell-table--by-id))
  (tabulated-list-init-header)
  (dwell-table--print))

(defun dwell-table--print ()
  "Print the rows that the filter lets through, the windows' places kept."
  ;; Thousands of rows are a few dozen MB of strings: collecting garbage between them takes 80% of the time.
  (let ((gc-cons-threshold (max gc-cons-threshold (* 64 1024 1024))))
    (dwell-table--print-rows)))

(defun dwell-table--print-rows ()
  "Do what `dwell-table--print' says."
  (setq tabulated-list-entries
        (seq-filter #'dwell-table--passes-p
                    (seq-map (lambda (row)
                               (list (funcall dwell-table--id-function row)
                                     (funcall dwell-table--entry-function (funcall dwell-table--row-function row))))
                             dwell-table--rows)))
  (let ((line (line-number-at-pos))
        (id (tabulated-list-get-id))
        (places (mapcar (lambda (window)
                          (list window (window-start window)
                                (tabulated-list-get-id (window-point window))))
                        (get-buffer-window-list nil nil t))))
    (tabulated-list-print t)
    (unless tabulated-list-entries (dwell-table--say-empty))
    (unless (equal id (tabulated-list-get-id)) ; its row is gone: stay about there
      (goto-char (point-min))
      (forward-line (1- line))
      (when (and (eobp) (not (bobp))) (forward-line -1)))
    (pcase-dolist (`(,window ,start ,id) places)
      (set-window-start window (min start (point-max)) t)
      (set-window-point window (or (and id (not (eq window (selected-window))) (dwell-table--place id))
                                   (point))))))

(defun dwell-table--say-empty ()
  "Say why there are no rows: an empty buffer would leave one to guess."
  (let ((inhibit-read-only t))
    (insert (propertize
             (if (seq-empty-p dwell-table--rows)
                 (string-join (cons (substitute-command-keys (funcall dwell-table--empty-function)) dwell-table--notes)
                              "\n")
               (format "No row matches /%s/; an empty filter shows all." dwell-table--filter))
             'face 'dwell-cost)
            "\n")
    (goto-char (point-min))))

(defun dwell-table--passes-p (entry)
  "Return non-nil if the filter lets ENTRY through."
  (or (null dwell-table--filter)
      (seq-some (lambda (column) (string-match-p dwell-table--filter column)) (cadr entry))))

(defun dwell-table--place (id)
  "Return where the row of ID begins, or nil."
  (save-excursion
    (goto-char (point-min))
    (cl-loop until (eobp)
             when (equal id (tabulated-list-get-id)) return (point)
             do (forward-line 1))))

(defun dwell-table--order (key)
  "Return a predicate that orders entries by KEY of their rows, no estimate first.
KEY is a function of a row, or what `plist-get' finds in it."
  (lambda (a b)
    (cl-flet ((value (entry)
                (let ((row (funcall dwell-table--row-function (gethash (car entry) dwell-table--by-id))))
                  (or (if (functionp key) (funcall key row) (plist-get row key))
                      most-negative-fixnum))))
      (< (value a) (value b)))))

(defun dwell-table--row ()
  "Return the row at point."
  (or (and dwell-table--by-id (gethash (tabulated-list-get-id) dwell-table--by-id))
      (user-error "Dwell: no row here")))

(defun dwell-table--say (text)
  "Show TEXT, what the list is of, and the filter in the mode line."
  (setq dwell-table--title text)
  ;; A variable's text is shown as it is: no percent sign need be doubled.
  (setq mode-line-process
        (concat " " text (if dwell-table--filter (format " /%s/" dwell-table--filter) "")))
  (force-mode-line-update))

(defun dwell-table-filter (regexp)
  "Show only the rows with a column that matches REGEXP; all if it is empty."
  (interactive (list (read-regexp "Show rows that match (empty for all): ")) dwell-table-mode)
  (setq dwell-table--filter (if (string-empty-p regexp) nil regexp))
  (dwell-table--print)
  (dwell-table--say dwell-table--title))

(defun dwell-table-notes ()
  "Say what one must know to read the list."
  (interactive nil dwell-table-mode)
  (message "%s" (if dwell-table--notes (string-join dwell-table--notes "\n")
                  "Dwell: nothing to note")))

(defun dwell--view-buffer (kind mode)
  "Return the buffer of KIND, in MODE, for this buffer's project."
  (let* ((key (dwell--key (dwell--ensure)))
         (root (if (stringp key) key default-directory))
         (project (and (stringp key) (file-name-nondirectory (directory-file-name key))))
         (buffer (get-buffer-create (format "*Dwell %s%s*" kind (if project (concat ": " project) "")))))
    (with-current-buffer buffer
      (unless (derived-mode-p mode) (funcall mode))
      (setq default-directory root dwell--buffer-key key))
    buffer))

(defun dwell-table--what (by)
  "Return what the rows BY, as the server calls it, are called for users."
  (pcase by ("procedure" "function") ("image" "binary") ("app" "application") (_ by)))

(provide 'dwell-table)
;;; dwell-table.el ends here
