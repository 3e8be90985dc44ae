;;; dwell-describe.el --- All that is known of a line  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's hover and its legend, plain texts.  Out: help windows with them; links lead to
;; culprits' lines, to listings and to the legend.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'dwell-sync)
(require 'dwell-view)


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
     (let ((text (plist-get (plist-get hover :contents) :value)))
       (if (member text '(nil ""))
           (message "Dwell: nothing is known of this line")
         (let ((help-window-select nil))
           (with-help-window "*Dwell line*"
             (with-current-buffer standard-output
               (dwell--insert-linked text (plist-get hover :links))))))))))

;;;###autoload
(defun dwell-legend ()
  "Explain the numbers that Dwell shows, in a help window."
  (interactive)
  (dwell--request (dwell--ensure) :dwell/legend (make-hash-table)
                  (lambda (legend)
                    (with-help-window "*Dwell legend*"
                      (with-current-buffer standard-output
                        (insert (plist-get legend :text))
                        (seq-doseq (heading (plist-get legend :headings))
                          (put-text-property (dwell--place-in-text (point-min) (plist-get heading :start))
                                             (dwell--place-in-text (point-min) (plist-get heading :end))
                                             'face 'bold))
                        (visual-line-mode))))))

(defun dwell--insert-linked (text links)
  "Insert TEXT with a button for each of LINKS, a vector of the server's."
  (let ((start (point)))
    (insert text)
    (seq-doseq (link links)
      (make-text-button (dwell--place-in-text start (plist-get link :start))
                        (dwell--place-in-text start (plist-get link :end))
                        'help-echo (dwell--link-in-words link)
                        'dwell-link link
                        'action (lambda (button) (dwell--follow (button-get button 'dwell-link)))))))

(defun dwell--place-in-text (start offset)
  "Return the position OFFSET, in UTF-16, after START."
  (let ((place start))
    (while (> offset 0)
      (setq offset (- offset (if (<= #x10000 (char-after place) #x10FFFF) 2 1))
            place (1+ place)))
    place))

(defun dwell--link-in-words (link)
  "Return where LINK leads, for the echo area."
  (cond ((plist-get link :uri)
         (format "%s:%d" (dwell--file (plist-get link :uri)) (1+ (plist-get link :line))))
        ((plist-get link :procedure) (format "Listing of %s" (plist-get link :procedure)))
        (t "What the numbers mean")))

(defun dwell--follow (link)
  "Show where LINK leads: a line of a file, a function's listing, or the legend."
  (cond ((plist-get link :uri) (dwell--visit (plist-get link :uri) (plist-get link :line) t))
        ((plist-get link :procedure)
         (dwell--show 'listing (plist-get link :procedure) (plist-get link :address)))
        (t (dwell-legend))))

(provide 'dwell-describe)
;;; dwell-describe.el ends here
