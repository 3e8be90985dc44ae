;;; dwell-describe.el --- All that is known of a line  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's hover and its legend, Markdown.  Out: help windows with their text; links lead to
;; culprits' lines, to listings and to the legend.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'dwell-sync)

(declare-function dwell-listing "dwell-listing" (procedure &optional place))

(defun dwell-describe-line ()
  "Show all the server knows of the line at point, in a help window."
  (interactive)
  (unless dwell--document (user-error "Dwell: `dwell-mode' is off here, or its server is missing"))
  (dwell--send-changes)
  (dwell--request
   dwell--document-connection :textDocument/hover
   `( :textDocument (:uri ,dwell--document)
      :position ,(dwell--position (save-excursion (back-to-indentation) (point))))
   (lambda (hover)
     (let* ((contents (plist-get hover :contents))
            (text (if (stringp contents) contents (plist-get contents :value))))
       (if (member text '(nil ""))
           (message "Dwell: nothing is known of this line")
         (let ((help-window-select nil))
           (with-help-window "*Dwell line*"
             (with-current-buffer standard-output (dwell--insert-linked (dwell--plain text))))))))))

;;;###autoload
(defun dwell-legend ()
  "Explain the numbers that Dwell shows, in a help window."
  (interactive)
  (dwell--request (dwell--ensure) :dwell/legend (make-hash-table)
                  (lambda (legend)
                    (with-help-window "*Dwell legend*"
                      (with-current-buffer standard-output
                        (insert (dwell--plain (plist-get legend :markdown)))
                        (visual-line-mode))))))

(defun dwell--insert-linked (text)
  "Insert TEXT with buttons where it has the property `dwell-link'."
  (let ((place (point)) target next)
    (insert text)
    (while (< place (point-max))
      (setq next (next-single-property-change place 'dwell-link nil (point-max)))
      (when (setq target (get-text-property place 'dwell-link))
        (make-text-button place next 'help-echo target 'dwell-target target
                          'action (lambda (button) (dwell--follow (button-get button 'dwell-target)))))
      (setq place next))))

(defun dwell--follow (target)
  "Show TARGET of a link: a line of a file, a procedure's listing, or the legend."
  (cond ((equal target "command:dwell.showLegend") (dwell-legend))
        ((string-match "\\`command:dwell\\.showListing\\?\\(.*\\)\\'" target)
         (let ((arguments (json-parse-string (decode-coding-string (url-unhex-string (match-string 1 target)) 'utf-8)
                                             :null-object nil)))
           (dwell-listing (aref arguments 0) (and (> (length arguments) 1) (aref arguments 1)))))
        ((string-match "\\`\\(file://[^#]*\\)\\(?:#L\\([0-9]+\\)\\)?" target)
         (dwell--visit (match-string 1 target)
                       (1- (string-to-number (or (match-string 2 target) "1"))) t))))

(defun dwell--plain-links (markdown)
  "Return MARKDOWN with only the text of each link, which knows its target."
  (replace-regexp-in-string "\\[\\([^]\n]+\\)\\](\\([^)\n]*\\))"
                            (lambda (link) (propertize (match-string 1 link) 'dwell-link (match-string 2 link)))
                            markdown t t))

(defun dwell--heading (line)
  "Return LINE, a heading of Markdown, as one reads it."
  (propertize (replace-regexp-in-string "^#+ +" "" line) 'face 'bold))

(defun dwell--plain (markdown)
  "Return MARKDOWN as one reads it without a renderer.
Where a link was, the text has the property `dwell-link', its target."
  (thread-last markdown
               (replace-regexp-in-string "^```.*\n?" "")
               (replace-regexp-in-string "^#+ +\\(.*\\)$" #'dwell--heading)
               (replace-regexp-in-string "^|[-: |]+|\n" "")
               (replace-regexp-in-string "^| *\\(.*?\\) *|$" "\\1")
               (dwell--plain-links)
               (replace-regexp-in-string "\\*\\*\\|`" "")
               (replace-regexp-in-string "\\\\\\([[:punct:]]\\)" "\\1")))

(provide 'dwell-describe)
;;; dwell-describe.el ends here
