;;; dwell-calls.el --- Calls of functions in running programs, counted now  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: a function, a process, and the server's `dwell/callPaths', once a second.  Out: a buffer with each
;; counted function and its call paths.  Numbers of calls are exact.  Counting ends when one stops it, or
;; with the server.

;;; Code:

(require 'dwell-client)
(require 'dwell-epoch)
(require 'dwell-lines)
(require 'dwell-sync)
(require 'dwell-table)

(defconst dwell-calls--frames-max 6
  "How many callers of a path are named on its line.")

(defvar dwell-calls-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map (kbd "RET") #'dwell-calls-visit)
    (define-key map [mouse-2] #'dwell-calls-visit)
    (define-key map "o" #'dwell-calls-visit-other-window)
    (define-key map "i" #'dwell-calls-count-caller)
    (define-key map "s" #'dwell-stop-counting)
    map)
  "Keymap of `dwell-calls-mode'.")

(define-derived-mode dwell-calls-mode special-mode "Dwell-Calls"
  "Functions whose calls are counted in running programs, with their call paths.

\\{dwell-calls-mode-map}"
  :interactive nil
  (setq truncate-lines t
        header-line-format " RET: the call  i: count the caller, too  s: stop  g: ask again")
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-calls--fetch (current-buffer)))))

;;;###autoload
(defun dwell-count-calls (pid)
  "Count the calls of the function at point in the process PID, until one stops it."
  (interactive (list (dwell--read-process "Count the calls in the process: ")))
  (dwell-calls--count
   (if dwell--document
       (progn (dwell--send-changes)
              (list :textDocument (list :uri dwell--document) :position (dwell--position (point))))
     (list :function (read-string "Count the calls of the function: " nil nil (thing-at-point 'symbol t))))
   (vector pid)))

(defun dwell-calls--count (function pids)
  "Count the calls of FUNCTION, a plist that names it, in the processes PIDS."
  (let ((buffer (dwell--view-buffer "calls" 'dwell-calls-mode)))
    (message "Dwell: counting calls…")
    (dwell--execute (dwell--ensure) "dwell.server.countCalls" (vector `(,@function :pids ,pids))
                    (lambda (_)
                      (message nil)
                      (dwell-calls--fetch buffer)
                      (pop-to-buffer buffer)))))

(defun dwell-stop-counting ()
  "Stop counting the function at point; elsewhere all.
What has ended is forgotten."
  (interactive)
  (let ((at (get-text-property (line-beginning-position) 'dwell-count))
        (connection (dwell--ensure)))
    (if at (dwell-calls--stop connection at)
      (dwell--request connection :dwell/callPaths (make-hash-table)
                      (lambda (result)
                        (seq-doseq (count (plist-get result :counts)) (dwell-calls--stop connection count)))))))

(defun dwell-calls--stop (connection count)
  "Stop COUNT of CONNECTION's server."
  (dwell--execute connection "dwell.server.stopCounting" (vector (plist-get count :id)) #'ignore))

;;;; Showing

(defun dwell-calls--fetch (buffer)
  "Ask for the numbers and show them in BUFFER."
  (with-current-buffer buffer
    (dwell--request (dwell--ensure) :dwell/callPaths (make-hash-table) #'dwell-calls--show)))

(defun dwell-calls--show (result)
  "Show RESULT, all that is counted."
  (let ((inhibit-read-only t)
        (line (line-number-at-pos))
        (column (current-column)))
    (erase-buffer)
    (seq-doseq (count (plist-get result :counts))
      (when-let ((problem (plist-get count :problem))) (insert (propertize problem 'face 'error) "\n"))
      (seq-doseq (function (plist-get count :functions)) (dwell-calls--insert count function)))
    (when (zerop (buffer-size))
      (insert (propertize "Nothing is counted: `M-x dwell-count-calls' on a function." 'face 'dwell-cost) "\n"))
    (goto-char (point-min))
    (forward-line (1- line))
    (move-to-column column)
    (set-buffer-modified-p nil)))

(defun dwell-calls--insert (count function)
  "Insert FUNCTION of COUNT and its call paths."
  (let ((from (point)))
    (insert (propertize (plist-get function :function) 'face 'bold) "  "
            (propertize (concat (plist-get function :label) "  " (plist-get function :image)) 'face 'dwell-cost) "\n")
    (put-text-property from (point) 'dwell-place (plist-get function :place))
    (seq-doseq (path (plist-get function :paths)) (dwell-calls--insert-path path))
    (unless (zerop (plist-get function :omittedPaths))
      (insert (propertize (format "  %d more paths" (plist-get function :omittedPaths)) 'face 'dwell-cost) "\n"))
    (insert "\n")
    (put-text-property from (point) 'dwell-count count)))

(defun dwell-calls--insert-path (path)
  "Insert PATH as a line: its part of the calls, and its frames.
The first one is that of the call site."
  (let* ((frames (append (plist-get path :frames) nil))
         (shown (seq-take frames dwell-calls--frames-max))
         (mean (plist-get (plist-get path :wall) :mean))
         (names (mapcar #'dwell-calls--frame (or shown (list nil)))))
    (insert (propertize
             (concat (propertize (string-pad (dwell--format-share (plist-get path :share)) 8 nil t)
                                 'face (dwell--heat (plist-get path :share)))
                     (format "  %d calls" (plist-get path :calls))
                     (if mean (format ", mean %s" (dwell-calls--time mean)) "")
                     "  " (string-join names " ← ")
                     (if (> (length frames) (length shown)) " ← …" ""))
             'dwell-frame (car frames) 'dwell-place (plist-get (car frames) :place))
            "\n")))

(defun dwell-calls--frame (frame)
  "Return FRAME in words; nil stands for all other paths."
  (let ((place (plist-get frame :place)))
    (cond ((null frame) "[other paths]")
          (t (concat (or (plist-get frame :function) "[unknown]")
                     (if place
                         (propertize (format " %s:%d" (file-name-nondirectory (dwell--file (plist-get place :uri)))
                                             (1+ (plist-get place :line)))
                                     'face 'dwell-cost)
                       ""))))))

(defun dwell-calls--time (ns)
  "Return the time NS, in nanoseconds, in two digits."
  (pcase-let ((`(,size . ,unit) (or (seq-find (lambda (each) (>= ns (car each)))
                                              '((1e9 . "s") (1e6 . "ms") (1e3 . "µs")))
                                    '(1 . "ns"))))
    (let ((value (/ ns (float size))))
      (format (if (and (< value 9.95) (not (equal unit "ns"))) "%.1f %s" "%.0f %s") value unit))))

;;;; Rows

(defun dwell-calls-visit (&optional other-window)
  "Go to the call at point, or to the function; in another window if OTHER-WINDOW."
  (interactive nil dwell-calls-mode)
  (let ((place (or (get-text-property (line-beginning-position) 'dwell-place)
                   (user-error "Dwell: no source is known here"))))
    (dwell--visit (plist-get place :uri) (plist-get place :line) other-window)))

(defun dwell-calls-visit-other-window ()
  "Go to the call at point in another window."
  (interactive nil dwell-calls-mode)
  (dwell-calls-visit t))

(defun dwell-calls-count-caller ()
  "Count the calls of the function that makes the call at point, too."
  (interactive nil dwell-calls-mode)
  (let ((frame (get-text-property (line-beginning-position) 'dwell-frame))
        (count (get-text-property (line-beginning-position) 'dwell-count)))
    (when (or (null (plist-get frame :function)) (eq t (plist-get frame :inlined)))
      (user-error "Dwell: the call was inlined, or its function has no name"))
    (dwell-calls--count
     (list :function (concat (and (plist-get frame :image) (concat (plist-get frame :image) ":"))
                             (plist-get frame :function)))
     (vconcat (plist-get count :pids)))))

(defun dwell-calls--changed (connection method _params)
  "Show other numbers of CONNECTION's server if METHOD says that there are."
  (when (eq method 'dwell/callsDidChange)
    (dolist (buffer (buffer-list))
      (with-current-buffer buffer
        (when (and (derived-mode-p 'dwell-calls-mode) (eq connection (dwell--connection)))
          (dwell-calls--fetch buffer))))))

(add-hook 'dwell-notification-functions #'dwell-calls--changed)

(provide 'dwell-calls)
;;; dwell-calls.el ends here
