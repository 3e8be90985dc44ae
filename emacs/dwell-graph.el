;;; dwell-graph.el --- A procedure's control-flow graph  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: the server's `dwell/cfg'.  Out: a buffer with a block on each line of it: in a window system that
;; shows SVG slices of the server's picture in the theme's colours, else the blocks in words, with the
;; edges drawn beside them.  Both are walked by the same keys; colours are the faces' alone.

;;; Code:

(require 'dwell-client)
(require 'dwell-lines)
(require 'dwell-table)
(require 'dwell-view)
(require 'color)

(defcustom dwell-graph-picture t
  "Whether the control-flow graph is a picture where Emacs can show one."
  :type 'boolean
  :group 'dwell)

(defconst dwell-graph--height-max 20000
  "Pixels that a picture may be high; a higher one would take too much memory.")

(defconst dwell-graph--lanes-max 12
  "The most edges that are drawn beside each other in words.")

(defvar-local dwell-graph--procedure nil
  "Function that this buffer draws, as the server takes it.")

(defvar-local dwell-graph--result nil
  "The server's answer that is shown.")

(defvar-local dwell-graph--scale 1.0
  "How many times its own size the picture has.")

(defvar-local dwell-graph--words nil
  "Non-nil when words were asked for where a picture could be shown.")

(defvar dwell-graph-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (pcase-dolist (`(,key . ,command)
                   '(("RET" . dwell-graph-visit) ("l" . dwell-graph-visit) ("n" . dwell-graph-next)
                     ("p" . dwell-graph-previous) ("j" . dwell-graph-goto-successor)
                     ("h" . dwell-graph-hottest) ("s" . dwell-graph-summary) ("t" . dwell-graph-toggle-picture)
                     ("+" . dwell-graph-zoom-in) ("=" . dwell-graph-zoom-in) ("-" . dwell-graph-zoom-out)
                     ("0" . dwell-graph-zoom-reset) ("e" . dwell-select-epoch)))
      (define-key map (kbd key) command))
    (define-key map [mouse-2] #'dwell-graph-visit)
    map)
  "Keymap of `dwell-graph-mode'.")

;; An Emacs without a window system has none, and never gets there.
(declare-function image-size "image.c" (spec &optional pixels frame))

(define-derived-mode dwell-graph-mode special-mode "Dwell-Graph"
  "A function's basic blocks and where control goes between them.

\\{dwell-graph-mode-map}"
  :interactive nil
  (setq truncate-lines t
        dwell--revisit-function #'dwell-graph--fetch)
  (setq-local revert-buffer-function (lambda (&rest _) (dwell-graph--fetch)))
  (add-hook 'window-buffer-change-functions #'dwell--window-shows nil t))

;;;###autoload
(defun dwell-graph (procedure)
  "Show the control-flow graph of PROCEDURE, `NAME' or `IMAGE:NAME'.
Interactively that of the function at point, else of one to choose."
  (interactive
   (let ((here (dwell--procedures-here)))
     (list (if (and here (null (cdr here)) (not current-prefix-arg)) (car here)
             (dwell--read-procedure here)))))
  (let ((buffer (dwell--view-buffer (concat "graph of " procedure) 'dwell-graph-mode)))
    (with-current-buffer buffer
      (setq dwell-graph--procedure procedure)
      (dwell-graph--fetch (lambda () (pop-to-buffer buffer))))))

(defun dwell-graph--fetch (&optional then)
  "Ask for this buffer's graph, show it, then call THEN."
  (dwell--request (dwell--ensure) :dwell/cfg (list :procedure dwell-graph--procedure)
                  (lambda (result)
                    (setq dwell-graph--result result)
                    (dwell-graph--show)
                    (when (functionp then) (funcall then)))
                  (lambda (problem)
                    (when (zerop (buffer-size)) (kill-buffer))
                    (unless (dwell--passing-p problem)
                      (message "Dwell: %s" (plist-get problem :message))))))

;;;; Showing

(defun dwell-graph--show ()
  "Show this buffer's graph; keep point on its block, in each window."
  (let ((inhibit-read-only t)
        (here (dwell-graph--address))
        (places (mapcar (lambda (window) (cons window (dwell-graph--address (window-point window))))
                        (get-buffer-window-list nil nil t)))
        (picture (dwell-graph--picture-p)))
    (erase-buffer)
    (if picture (dwell-graph--insert-picture) (dwell-graph--insert-words))
    (setq header-line-format
          (replace-regexp-in-string
           "%" "%%" (concat " " (plist-get dwell-graph--result :title) (dwell-graph--omitted)
                            "   n/p: blocks  j: where it goes  h: hottest  RET: listing"
                            (if picture "  +/-: zoom  t: words" ""))
           t t))
    (dwell-graph--goto here)
    (pcase-dolist (`(,window . ,address) places)
      (set-window-point window (save-excursion (dwell-graph--goto address) (point))))
    (set-buffer-modified-p nil)))

(defun dwell-graph--omitted ()
  "Return how many blocks are not drawn, in words."
  (let ((omitted (or (plist-get dwell-graph--result :omittedBlocks) 0)))
    (if (> omitted 0) (format " (%d more blocks)" omitted) "")))

(defun dwell-graph--picture-p ()
  "Return non-nil if this buffer shows a picture."
  (and dwell-graph-picture (not dwell-graph--words)
       (display-images-p) (image-type-available-p 'svg)
       (< (* dwell-graph--scale (dwell-graph--bottom)) dwell-graph--height-max)))

(defun dwell-graph--bottom ()
  "Return where the last block of the picture ends."
  (let* ((blocks (plist-get dwell-graph--result :blocks))
         (box (and (> (length blocks) 0) (plist-get (aref blocks (1- (length blocks))) :box))))
    (if box (+ (plist-get box :y) (plist-get box :height)) 0)))

(defun dwell-graph--insert-picture ()
  "Insert the picture, a slice of it for each block."
  (let* ((image (create-image (dwell-graph--themed (plist-get dwell-graph--result :svg)) 'svg t
                              :scale dwell-graph--scale :ascent 'center))
         (size (image-size image t))
         (blocks (plist-get dwell-graph--result :blocks))
         (top 0))
    (dotimes (i (length blocks))
      (let* ((block (aref blocks i))
             (bottom (if (= i (1- (length blocks))) (cdr size)
                       ;; What lies between two blocks belongs to the one above.
                       (min (cdr size)
                            (floor (* dwell-graph--scale
                                      (- (plist-get (plist-get (aref blocks (1+ i)) :box) :y) 2)))))))
        (insert (propertize (concat (dwell--hex (plist-get block :address)) "  " (plist-get block :head))
                            'display (list (list 'slice 0 top (car size) (- bottom top)) image)
                            'dwell-block (plist-get block :address)
                            'help-echo (plist-get block :head))
                (propertize "\n" 'line-height t 'dwell-block (plist-get block :address)))
        (setq top bottom)))))

(defun dwell-graph--themed (svg)
  "Return SVG, which has no colours, in those of the theme."
  (let* ((front (or (face-foreground 'default nil t) "black"))
         (back (or (face-background 'default nil t) "white"))
         (hot (or (face-foreground 'dwell-heat-high nil t) "red"))
         (style (concat
                 (format "svg{background:%s} text{fill:%s;font-family:'%s',monospace;font-size:12px}"
                         (dwell-graph--hex back) (dwell-graph--hex front)
                         (replace-regexp-in-string "['\\<&]" "" (format "%s" (face-attribute 'default :family nil t))))
                 (format ".head{font-weight:bold} .block rect{stroke:%s} .edge{fill:none;stroke:%s} .arrow{fill:%s}"
                         (dwell-graph--hex front) (dwell-graph--hex front) (dwell-graph--hex front))
                 (mapconcat (lambda (step)
                              (format ".heat-%d rect{fill:%s}" step (dwell-graph--mix back hot (* step 0.05))))
                            (number-sequence 0 9) " "))))
    (replace-regexp-in-string
     "\\`<svg \\([^>]*\\)>"
     (lambda (_) (format "<svg xml:space=\"preserve\" %s><style>%s</style>" (match-string 1 svg) style))
     svg t t)))

(defun dwell-graph--hex (color)
  "Return COLOR, a name or a number, as SVG has it."
  (dwell-graph--mix color color 0))

(defun dwell-graph--mix (from to part)
  "Return the colour that is PART of the way FROM one TO another."
  (cl-flet ((channels (color) (or (color-name-to-rgb color) '(0.5 0.5 0.5))))
    (apply #'format "#%02x%02x%02x"
           (cl-mapcar (lambda (a b) (round (* 255 (+ (* a (- 1 part)) (* b part)))))
                      (channels from) (channels to)))))

;;;; In words

(defun dwell-graph--insert-words ()
  "Insert the blocks in words, the edges drawn beside them."
  (let* ((blocks (append (plist-get dwell-graph--result :blocks) nil))
         (lanes (dwell-graph--lanes blocks))
         (width (1+ (apply #'max -1 (mapcar (lambda (edge) (nth 2 edge)) lanes))))
         (index 0))
    (dolist (block blocks)
      (dwell-graph--insert-block block index lanes width)
      (setq index (1+ index)))))

(defun dwell-graph--insert-block (block index lanes width)
  "Insert BLOCK, the INDEXth; LANES are edges beside it, WIDTH lanes wide."
  (let ((beg (point)) (address (plist-get block :address)))
    (insert (dwell-graph--gutter index 'head lanes width)
            (dwell--bar (plist-get block :share)) " "
            (propertize (concat (dwell--hex address) "  " (plist-get block :head)) 'face 'bold) "\n")
    (seq-doseq (line (plist-get block :lines))
      (insert (dwell-graph--gutter index 'body lanes width) "     " (plist-get line :text) "\n"))
    (insert (dwell-graph--gutter index 'tail lanes width) "     "
            (propertize (dwell-graph--successors block) 'face 'dwell-cost) "\n"
            (dwell-graph--gutter index 'after lanes width) "\n")
    (put-text-property beg (point) 'dwell-block address)))

(defun dwell-graph--successors (block)
  "Return where control goes from BLOCK, in words."
  (if (seq-empty-p (plist-get block :successors)) "leaves the function"
    (mapconcat (lambda (successor)
                 (let ((times (plist-get successor :executions)) (part (plist-get successor :part)))
                   (format "%s %s%s" (if (eq t (plist-get successor :falls)) "↓" "→") (dwell--hex (plist-get successor :to))
                           (cond ((or (eql times 0) (eql part 0)) " not seen")
                                 (times (format " ×%s" (dwell--format-count times)))
                                 (part (format " %.0f%%" (* 100 part)))
                                 (t "")))))
               (plist-get block :successors) "   ")))

(defun dwell-graph--lanes (blocks)
  "Return a list (FROM TO LANE) for each edge of BLOCKS that does not fall.
Short ones have low lanes, near the text."
  (let ((index (make-hash-table)) edges placed)
    (cl-loop for block in blocks for i from 0 do (puthash (plist-get block :address) i index))
    (cl-loop for block in blocks for i from 0
             do (seq-doseq (successor (plist-get block :successors))
                  (when-let ((to (gethash (plist-get successor :to) index)))
                    (unless (eq t (plist-get successor :falls)) (push (list i to) edges)))))
    (dolist (edge (sort edges (lambda (a b) (< (abs (apply #'- a)) (abs (apply #'- b))))))
      (let ((lane (cl-loop for lane from 0
                           unless (seq-some (lambda (other) (and (= lane (nth 2 other)) (dwell-graph--meet-p edge other)))
                                            placed)
                           return lane)))
        (when (< lane dwell-graph--lanes-max) (push (append edge (list lane)) placed))))
    placed))

(defun dwell-graph--meet-p (a b)
  "Return non-nil if the edges A and B pass the same block."
  (and (<= (min (car a) (cadr a)) (max (car b) (cadr b)))
       (<= (min (car b) (cadr b)) (max (car a) (cadr a)))))

(defun dwell-graph--gutter (index part lanes width)
  "Return what is drawn before the PART of block INDEX: LANES, WIDTH of them.
PART is `head', where edges arrive, `body', `tail', where they leave,
or `after'."
  (let ((cells (make-string (* 2 width) ?\s)) (arrives nil) (leaves nil))
    (pcase-dolist (`(,from ,to ,lane) lanes)
      (let ((at (* 2 (- width 1 lane))))
        (when (dwell-graph--passes-p index part from to) (aset cells at ?│))
        (when (and (eq part 'head) (= index to))
          (aset cells at (if (< from to) ?╰ ?╭))
          (setq arrives (min (or arrives at) at)))
        (when (and (eq part 'tail) (= index from))
          (aset cells at (if (< from to) ?╭ ?╰))
          (setq leaves (min (or leaves at) at)))))
    (when-let ((from (or arrives leaves)))
      (cl-loop for i from (1+ from) below (length cells)
               do (pcase (aref cells i) (?\s (aset cells i ?─)) (?│ (aset cells i ?┼)))))
    (propertize (concat cells (cond (arrives "▶") (leaves "─") (t " "))) 'face 'dwell-cost)))

(defun dwell-graph--passes-p (index part from to)
  "Return non-nil if an edge FROM one block TO another passes PART of block INDEX."
  (cl-flet ((row (index part) (+ (* 4 index) (seq-position '(head body tail after) part))))
    (let ((start (row from 'tail)) (end (row to 'head)))
      (< (min start end) (row index part) (max start end)))))

;;;; Moving

(defun dwell-graph--address (&optional place)
  "Return the address of the block at PLACE, point by default, or nil."
  (let ((place (or place (point))))
    (or (get-text-property place 'dwell-block)
        (and (> place (point-min)) (get-text-property (1- place) 'dwell-block)))))

(defun dwell-graph--place (address)
  "Return where the block at ADDRESS begins, or nil."
  (and address (text-property-any (point-min) (point-max) 'dwell-block address)))

(defun dwell-graph--goto (address)
  "Move to the block at ADDRESS, or to the first."
  (goto-char (or (dwell-graph--place address) (point-min))))

(defun dwell-graph--index ()
  "Return which block point is on, from 0."
  (let ((address (dwell-graph--address)))
    (or (seq-position (plist-get dwell-graph--result :blocks) address
                      (lambda (block address) (eql (plist-get block :address) address)))
        (user-error "Dwell: no block here"))))

(defun dwell-graph--block ()
  "Return the block at point."
  (aref (plist-get dwell-graph--result :blocks) (dwell-graph--index)))

(defun dwell-graph-next (&optional count)
  "Move to the COUNTth next block."
  (interactive "p" dwell-graph-mode)
  (let ((blocks (plist-get dwell-graph--result :blocks)) (to (+ (dwell-graph--index) (or count 1))))
    (unless (< -1 to (length blocks)) (user-error "Dwell: no more blocks"))
    (dwell-graph--goto (plist-get (aref blocks to) :address))))

(defun dwell-graph-previous (&optional count)
  "Move to the COUNTth previous block."
  (interactive "p" dwell-graph-mode)
  (dwell-graph-next (- (or count 1))))

(defun dwell-graph-goto-successor ()
  "Move to where control goes most often from the block at point.
Again from where it went to, it follows the hottest way."
  (interactive nil dwell-graph-mode)
  (let ((successors (append (plist-get (dwell-graph--block) :successors) nil)))
    (unless successors (user-error "Dwell: control leaves the function here"))
    (push-mark nil t)
    (dwell-graph--goto
     (plist-get (car (seq-sort-by (lambda (successor) (or (plist-get successor :part) 0)) #'> successors)) :to))))

(defun dwell-graph-hottest ()
  "Move to the block that takes the most time."
  (interactive nil dwell-graph-mode)
  (let ((blocks (append (plist-get dwell-graph--result :blocks) nil)))
    (unless blocks (user-error "Dwell: no blocks here"))
    (push-mark nil t)
    (dwell-graph--goto (plist-get (car (seq-sort-by (lambda (block) (plist-get block :share)) #'> blocks)) :address))))

(defun dwell-graph-visit (&optional event)
  "Show the listing at the block at point, or where EVENT, a click, is."
  (interactive (list last-input-event) dwell-graph-mode)
  (when (mouse-event-p event) (mouse-set-point event))
  (dwell--show 'listing dwell-graph--procedure (plist-get (dwell-graph--block) :address)))

(defun dwell-graph-summary ()
  "Show where this function's cycles go."
  (interactive nil dwell-graph-mode)
  (dwell--show 'summary dwell-graph--procedure))

;;;; Zoom

(defun dwell-graph-toggle-picture ()
  "Show words for the picture, or the picture again."
  (interactive nil dwell-graph-mode)
  (unless (and dwell-graph-picture (display-images-p) (image-type-available-p 'svg))
    (user-error "Dwell: this Emacs shows no SVG here"))
  (setq dwell-graph--words (not dwell-graph--words))
  (dwell-graph--show))

(defun dwell-graph--zoom (scale)
  "Show the picture at SCALE, within bounds."
  (unless (dwell-graph--picture-p) (user-error "Dwell: there is no picture to zoom"))
  (setq dwell-graph--scale (max 0.2 (min 4.0 scale)))
  (dwell-graph--show))

(defun dwell-graph-zoom-in ()
  "Show the picture larger."
  (interactive nil dwell-graph-mode)
  (dwell-graph--zoom (* dwell-graph--scale 1.25)))

(defun dwell-graph-zoom-out ()
  "Show the picture smaller."
  (interactive nil dwell-graph-mode)
  (dwell-graph--zoom (/ dwell-graph--scale 1.25)))

(defun dwell-graph-zoom-reset ()
  "Show the picture at its own size."
  (interactive nil dwell-graph-mode)
  (dwell-graph--zoom 1.0))

(provide 'dwell-graph)
;;; dwell-graph.el ends here
