;;; dwell-sql.el --- Queries in SQL over all recordings  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: a query in SQL and the server's `dwell/sql'.  Out: a tabulated list of its rows.  What a query
;; can do is the server's matter: it reads the tables of docs/sql.md and nothing else.

;;; Code:

(require 'dwell-client)
(require 'dwell-table)

(defcustom dwell-sql-limit 1000
  "How many rows the list of a query has at most."
  :type 'natnum
  :group 'dwell)

(defconst dwell-sql--width-max 60
  "Largest width of a column; longer values stand out.")

(defconst dwell-sql--starter
  "SELECT path, demangled, count FROM procedure_samples JOIN images USING (image) \
WHERE epoch = dwell_epoch('latest') ORDER BY count DESC LIMIT 20"
  "The default of the first query: the functions with the most samples.")

(defvar dwell-sql-history nil
  "Queries that were typed.")

(defvar-local dwell-sql--query nil
  "The query whose rows are shown.")

(defvar-local dwell-sql--cancel #'ignore
  "Function that cancels the query that runs.")

(defvar dwell-sql-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map dwell-table-mode-map)
    (define-key map "e" #'dwell-sql-edit)
    (define-key map "k" #'dwell-sql-cancel)
    map)
  "Keymap of `dwell-sql-mode'.")

(define-derived-mode dwell-sql-mode dwell-table-mode "Dwell-SQL"
  "The rows of a query in SQL over all recordings.

\\{dwell-sql-mode-map}"
  :interactive nil
  (setq dwell-table--id-function #'car
        dwell-table--entry-function (lambda (row) (vconcat (seq-map #'dwell-sql--text (cdr row))))
        dwell-table--empty-function (lambda () "No rows."))
  ;; A query may take minutes, so it is not run again whenever the profile changes.
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-sql--fetch)))
  (add-hook 'kill-buffer-hook #'dwell-sql-cancel nil t))

;;;###autoload
(defun dwell-sql (query)
  "Run QUERY, in SQL, over all recordings and list its rows.
Interactively that of the region if it is active, else one to type; the last
one is the default."
  (interactive
   (list (if (use-region-p) (buffer-substring-no-properties (region-beginning) (region-end))
           (dwell-sql--read nil))))
  (let ((buffer (dwell--view-buffer "SQL" 'dwell-sql-mode)))
    (with-current-buffer buffer
      (setq dwell-sql--query query)
      (dwell-sql--fetch))
    (pop-to-buffer buffer)))

(defun dwell-sql-edit ()
  "Change the query and run it."
  (interactive nil dwell-sql-mode)
  (dwell-sql (dwell-sql--read dwell-sql--query)))

(defun dwell-sql-cancel ()
  "Cancel the query that runs."
  (interactive nil dwell-sql-mode)
  (funcall dwell-sql--cancel))

(defun dwell-sql--read (initial)
  "Read a query; INITIAL is what is there to edit."
  (let ((default (or (car dwell-sql-history) dwell-sql--starter)))
    (read-string "Query (SQL): " initial 'dwell-sql-history default)))

(defun dwell-sql--fetch ()
  "Run this buffer's query and show its rows."
  (dwell-sql-cancel)
  (dwell-table--say "running…")
  (setq dwell-sql--cancel
        (dwell--request (dwell--ensure) :dwell/sql (list :query dwell-sql--query :limit dwell-sql-limit)
                        #'dwell-sql--show
                        (lambda (problem)
                          (dwell-table--say "failed")
                          (message "Dwell: %s" (plist-get problem :message))))))

(defun dwell-sql--show (result)
  "Show RESULT."
  (let ((rows (seq-map-indexed (lambda (row at) (cons at (append row nil))) (plist-get result :rows)))
        (more (eq t (plist-get result :more))))
    (setq tabulated-list-sort-key nil)
    (dwell-table--show rows (dwell-sql--format (plist-get result :columns) rows)
                       (append (and more (list "there are more rows (`dwell-sql-limit')"))
                               (plist-get result :notes) nil))
    (dwell-table--say (format (if more "the first %d rows" "%d rows") (length rows)))))

(defun dwell-sql--format (columns rows)
  "Return the list's format for COLUMNS with ROWS: as wide as their values."
  (vconcat
   (seq-map-indexed
    (lambda (column at)
      (let* ((name (dwell-sql--text (plist-get column :name)))
             (values (mapcar (lambda (row) (nth (1+ at) row)) rows))
             (number (seq-some #'numberp values))
             (widths (mapcar (lambda (value) (string-width (dwell-sql--text value))) values)))
        (append (list name (min dwell-sql--width-max (apply #'max (string-width name) widths))
                      (if number (dwell-table--order (lambda (row) (dwell-sql--number (nth (1+ at) row)))) t))
                (and number '(:right-align t)))))
    columns)))

(defun dwell-sql--number (value)
  "Return VALUE if it is a number: large ones are texts."
  (pcase value
    ((pred numberp) value)
    ((pred stringp) (string-to-number value))))

(defun dwell-sql--text (value)
  "Return VALUE, as JSON is read, as text in one line."
  (pcase value
    ('nil "")
    ('t "true")
    (:json-false "false")
    ((pred numberp) (number-to-string value))
    (_ (replace-regexp-in-string "[[:cntrl:]]" " " value))))

(provide 'dwell-sql)
;;; dwell-sql.el ends here
