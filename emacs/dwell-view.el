;;; dwell-view.el --- Dwell's views, by what they show  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: what to show.  Out: the command that shows it is called.  Views lead to each other, a listing
;; to the procedure's graph and back, but none of their files needs another one: they are loaded
;; with `dwell', or by their autoloads.

;;; Code:

(defconst dwell--views
  '((listing . dwell-listing)
    (graph . dwell-graph)
    (summary . dwell-summary)
    (diff . dwell-diff)
    (diff-instructions . dwell-diff-instructions))
  "Alist of view to the command that shows it.")

(defun dwell--show (view &rest arguments)
  "Show VIEW, one of `dwell--views', with ARGUMENTS for its command."
  (apply (alist-get view dwell--views) arguments))

(provide 'dwell-view)
;;; dwell-view.el ends here
