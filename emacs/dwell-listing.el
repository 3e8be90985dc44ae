;;; dwell-listing.el --- A procedure's instructions, stalls and culprits  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/listing'.  Out: a buffer with its text, each line of which knows its
;; instruction, its source line and its culprits.  What the text says is the server's: nothing here
;; reads it except for the bar of a bubble, which distinguishes that line from others.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'dwell-view)
(require 'outline)

(defface dwell-listing-source '((t :inherit font-lock-doc-face))
  "Face for source lines in a listing."
  :group 'dwell)

(defface dwell-listing-bubble '((t :inherit dwell-culprit))
  "Face for bubbles, the stalls above an instruction."
  :group 'dwell)

(defface dwell-listing-stalled '((t :inherit bold))
  "Face for an instruction with bubbles above it."
  :group 'dwell)

(defface dwell-listing-block '((t :inherit bold))
  "Face for the head of a basic block."
  :group 'dwell)

(defface dwell-listing-note '((t :inherit shadow))
  "Face for what is neither source nor instruction in a listing."
  :group 'dwell)

(defvar-local dwell-listing--procedure nil
  "Function that this buffer lists, as the server takes it.")

(defvar-local dwell-listing--lines nil
  "Vector of what each line of the text is, as the server gave it.")

(defconst dwell-listing--bubble "^ +[^ \n]+ •"
  "Regexp that matches the start of a bubble.")

(defvar dwell-listing-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map (kbd "RET") #'dwell-listing-visit)
    (define-key map [mouse-2] #'dwell-listing-visit)
    (define-key map "o" #'dwell-listing-visit-other-window)
    (define-key map "n" #'dwell-listing-next-stall)
    (define-key map "p" #'dwell-listing-previous-stall)
    (define-key map "j" #'dwell-listing-goto-culprit)
    (define-key map "." #'dwell-listing-goto-culprit)
    (define-key map "e" 'dwell-select-epoch)
    (define-key map "s" #'dwell-listing-summary)
    (define-key map "c" #'dwell-listing-graph)
    (define-key map "g" #'revert-buffer)
    (define-key map (kbd "M-.") #'dwell-listing-goto-definition)
    (define-key map (kbd "TAB") #'outline-cycle)
    (define-key map (kbd "<backtab>") #'outline-cycle-buffer)
    map)
  "Keymap of `dwell-listing-mode'.")


(define-derived-mode dwell-listing-mode special-mode "Dwell-Listing"
  "A function's instructions with their stalls and culprits.

\\{dwell-listing-mode-map}"
  :interactive nil
  (setq truncate-lines t
        dwell--revisit-function #'dwell-listing--fetch)
  ;; Basic blocks fold, and the summary on top.
  (setq-local outline-regexp "\\*\\*\\*\\|Where the cycles go" outline-level (lambda () 1))
  (outline-minor-mode 1)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-listing--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;; Showing

;;;###autoload
(defun dwell-listing (procedure &optional place)
  "Show the listing of PROCEDURE, `NAME' or `IMAGE:NAME'.
PLACE is where to begin: a source line, a cons of URI and line from 0,
or an instruction's address."
  (interactive
   (let* ((here (dwell--procedures-here))
          (procedure (if (and here (null (cdr here)) (not current-prefix-arg))
                         (car here)
                       (dwell--read-procedure here))))
     (list procedure (and (member procedure here)
                          (cons dwell--document (1- (line-number-at-pos nil t)))))))
  (let* ((connection (dwell--ensure))
         (key (dwell--key connection))
         (buffer (get-buffer-create (format "*Dwell listing: %s*" procedure))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'dwell-listing-mode) (dwell-listing-mode))
      (setq dwell--buffer-key key dwell-listing--procedure procedure)
      (dwell-listing--fetch
       (lambda ()
         (pop-to-buffer buffer)
         (cond ((consp place) (dwell-listing--goto-source (car place) (cdr place)))
               (place (dwell-listing--goto-address place))))))))

(defun dwell-listing--fetch (&optional then)
  "Ask for this buffer's listing, show it, then call THEN."
  (dwell--request (dwell--ensure) :dwell/listing (list :procedure dwell-listing--procedure)
                  (lambda (result)
                    (dwell-listing--show result)
                    (when (functionp then) (funcall then)))
                  (lambda (problem)
                    (when (zerop (buffer-size)) (kill-buffer))
                    (message "Dwell: %s" (plist-get problem :message)))))

(defun dwell-listing--show (result)
  "Show RESULT; keep point on its instruction."
  (let ((inhibit-read-only t)
        (address (plist-get (dwell-listing--line) :address))
        (line (line-number-at-pos)))
    (erase-buffer)
    (insert (plist-get result :text))
    (setq dwell-listing--lines (plist-get result :lines)
          header-line-format (concat " " (replace-regexp-in-string "%" "%%" (plist-get result :title))
                                     "   n/p: stalls  j: culprit  RET: source  s: summary  c: graph  TAB: fold"))
    (dwell-listing--fontify)
    (unless (and address (dwell-listing--goto-address address))
      (goto-char (point-min))
      (forward-line (1- line)))
    (set-buffer-modified-p nil)))

(defun dwell-listing--fontify ()
  "Give each line its face."
  (goto-char (point-min))
  (cl-loop for line across dwell-listing--lines
           for stalled = nil then (or bubble (and stalled (null (plist-get line :address))))
           for bubble = (looking-at-p dwell-listing--bubble)
           until (eobp)
           do (put-text-property
               (line-beginning-position) (line-end-position) 'face
               (cond (bubble 'dwell-listing-bubble)
                     ((plist-get line :address) (if stalled 'dwell-listing-stalled 'default))
                     ((plist-get line :source) 'dwell-listing-source)
                     ((looking-at-p "\\*\\*\\*") 'dwell-listing-block)
                     (t 'dwell-listing-note)))
           (forward-line 1)))

;;;; Places in it

(defun dwell-listing--line (&optional index)
  "Return what line INDEX of the text is, from 0; that at point by default."
  (let ((index (or index (1- (line-number-at-pos nil t)))))
    (and dwell-listing--lines (< -1 index (length dwell-listing--lines))
         (aref dwell-listing--lines index))))

(defun dwell-listing--goto-line (index)
  "Move to line INDEX of the text, from 0."
  (goto-char (point-min))
  (forward-line index)
  (when-let ((window (get-buffer-window))) (set-window-point window (point))))

(defun dwell-listing--place (address)
  "Return which line of the text, from 0, is the instruction at ADDRESS, or nil."
  (and address
       (cl-position address dwell-listing--lines :key (lambda (line) (plist-get line :address)))))

(defun dwell-listing--goto-address (address)
  "Move to the instruction at ADDRESS; return non-nil if it is listed."
  (when-let ((index (dwell-listing--place address)))
    (dwell-listing--goto-line index)
    t))

(defun dwell-listing--goto-source (uri line)
  "Move to the first instruction of LINE, from 0, of the file of URI."
  ;; Debug information may spell the file another way than the editor.
  (let* ((file (dwell--file uri))
         (same (make-hash-table :test #'equal))
         (index (cl-position-if
                 (lambda (entry)
                   (when-let ((source (plist-get entry :source)))
                     (and (= line (plist-get source :line))
                          (let ((other (plist-get source :uri)))
                            (when (eq 'unknown (gethash other same 'unknown))
                              (puthash other (file-equal-p file (dwell--file other)) same))
                            (gethash other same)))))
                 dwell-listing--lines)))
    (when index (dwell-listing--goto-line index))))

(defun dwell-listing--stall-here-p ()
  "Return non-nil if the line at point begins a stall: its first bubble."
  (save-excursion
    (forward-line 0)
    (and (looking-at-p dwell-listing--bubble)
         (or (bobp) (progn (forward-line -1) (not (looking-at-p dwell-listing--bubble)))))))

(defun dwell-listing-next-stall (&optional count)
  "Move to the COUNTth next stall."
  (interactive "p")
  (let* ((count (or count 1))
         (step (if (< count 0) -1 1))
         (place (save-excursion
                  (dotimes (_ (abs count))
                    (while (progn (unless (and (zerop (forward-line step)) (not (eobp)))
                                    (user-error "Dwell: no more stalls"))
                                  (not (dwell-listing--stall-here-p)))))
                  (point))))
    (goto-char place)))

(defun dwell-listing-previous-stall (&optional count)
  "Move to the COUNTth previous stall."
  (interactive "p")
  (dwell-listing-next-stall (- (or count 1))))

(defun dwell-listing-goto-culprit ()
  "Move to the culprit of the stall at point; again, to its next one."
  (interactive)
  (let* ((index (1- (line-number-at-pos nil t)))
         (culprits (dwell-listing--culprits index)))
    (unless culprits (user-error "Dwell: no culprit is known here"))
    (push-mark nil t)
    (dwell-listing--goto-line (or (seq-find (lambda (culprit) (/= culprit index)) culprits)
                                  (car culprits)))))

(defun dwell-listing--culprits (index)
  "Return the lines of the text that are to blame for the stall at line INDEX.
From an instruction, its bubbles above are looked at too."
  (or (append (plist-get (dwell-listing--line index) :culpritLines) nil)
      (cl-loop for i downfrom (1- index)
               for line = (dwell-listing--line i)
               while (and line (null (plist-get line :address)))
               append (append (plist-get line :culpritLines) nil))))

(defun dwell-listing-goto-definition ()
  "Move to the instruction whose address is at point, a culprit say.
On a register, to what wrote it last.  Elsewhere on a line, to where it
branches to, or to the culprit of its stall."
  (interactive)
  (let* ((word (save-excursion
                 (skip-chars-backward "0-9a-fx")
                 (and (looking-at "\\(?:0x\\)?\\([0-9a-f]+\\)\\_>") (match-string 1))))
         (index (1- (line-number-at-pos nil t)))
         (target (or (dwell-listing--writer index)
                     (seq-some (lambda (address)
                                 (let ((place (dwell-listing--place address)))
                                   (and place (/= place index) place)))
                               (list (and word (dwell--address word))
                                     (plist-get (dwell-listing--line) :target))))))
    (if (null target)
        (dwell-listing-goto-culprit)
      (push-mark nil t)
      (dwell-listing--goto-line target))))

(defun dwell-listing--writer (index)
  "Return the line that wrote the register at point, on line INDEX, or nil.
Of several, the nearest above; below only where a loop comes back."
  (let* ((word (save-excursion
                 (skip-chars-backward "a-z0-9")
                 (and (looking-at "[a-z][a-z0-9]*") (match-string 0))))
         (operand (seq-find (lambda (operand) (equal word (string-remove-prefix "%" (plist-get operand :text))))
                            (plist-get (dwell-listing--line index) :operands)))
         (lines (sort (append (plist-get operand :lines) nil) #'<)))
    (or (car (last (seq-filter (lambda (line) (< line index)) lines)))
        (car (last (delq index lines))))))

(defun dwell-listing-summary ()
  "Show where this function's cycles go."
  (interactive)
  (dwell--show 'summary dwell-listing--procedure))

(defun dwell-listing-graph ()
  "Show this function's control-flow graph."
  (interactive)
  (dwell--show 'graph dwell-listing--procedure))

(defun dwell-listing-visit (&optional other-window)
  "Visit the source of the line at point, in OTHER-WINDOW if non-nil."
  (interactive)
  (when (mouse-event-p last-input-event) (mouse-set-point last-input-event))
  (let ((source (cl-loop for i downfrom (1- (line-number-at-pos nil t))
                         while (>= i 0)
                         thereis (plist-get (dwell-listing--line i) :source))))
    (unless source (user-error "Dwell: no source is known for this line"))
    (dwell--visit (plist-get source :uri) (plist-get source :line) other-window)))

(defun dwell-listing-visit-other-window ()
  "Visit the source of the line at point in another window."
  (interactive)
  (dwell-listing-visit t))

(provide 'dwell-listing)
;;; dwell-listing.el ends here
