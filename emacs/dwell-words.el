;;; dwell-words.el --- How Dwell's numbers, causes and changes read  -*- lexical-binding: t; -*-

;; Copyright (C) 2026  The Dwell authors

;; SPDX-License-Identifier: MIT OR Apache-2.0

;;; Commentary:

;; In: costs and changes as the server has them.  Out: words, bars and faces for them, the same in
;; every buffer.  Nothing here asks or shows anything.

;;; Code:

(require 'dwell-client)
(require 'dwell-sync)

(defface dwell-cost '((t :inherit shadow))
  "Face for a line's cost."
  :group 'dwell)

(defface dwell-culprit
  '((((class color) (background light)) :foreground "#8a1c5c")
    (((class color) (background dark)) :foreground "#f0a0d0")
    (t :weight bold))
  "Face for the leading culprit."
  :group 'dwell)

(defface dwell-heat-low '((t :inherit shadow))
  "Face for the bar of a line that takes little time."
  :group 'dwell)

(defface dwell-heat-medium
  '((((class color) (background light)) :foreground "#8a6100")
    (((class color) (background dark)) :foreground "#e5c07b")
    (t :inherit default))
  "Face for the bar of a line that takes at least 2% of the time."
  :group 'dwell)

(defface dwell-heat-high
  '((((class color) (background light)) :foreground "#b3261e" :weight bold)
    (((class color) (background dark)) :foreground "#ff7b6b" :weight bold)
    (t :weight bold))
  "Face for the bar of a line that takes at least 10% of the time."
  :group 'dwell)

(defface dwell-worse
  '((((class color) (background light)) :foreground "#b3261e")
    (((class color) (background dark)) :foreground "#ff7b6b")
    (t :weight bold))
  "Face for what costs more than before."
  :group 'dwell)

(defface dwell-better
  '((((class color) (background light)) :foreground "#146c2e")
    (((class color) (background dark)) :foreground "#7bd88f")
    (t :slant italic))
  "Face for what costs less than before."
  :group 'dwell)

(defface dwell-noise '((t :inherit shadow))
  "Face for a change that may be chance."
  :group 'dwell)

;;;; Words

(defun dwell--hex (address)
  "Return ADDRESS in hexadecimal, as disassemblers write it.
The server's addresses are signed: those of kernel code are negative."
  (format "%x" (logand address #xffffffffffffffff)))

(defun dwell--address (digits)
  "Return the address, a signed one, that DIGITS stand for in hexadecimal."
  (let ((address (string-to-number digits 16)))
    (if (< address (ash 1 63)) address (- address (ash 1 64)))))

(defun dwell--format-share (share)
  "Return SHARE in percent."
  (cond ((< 0 share 0.0005) "<0.1%")
        ((>= share 0.9995) (format "%.0f%%" (* 100 share))) ; changes may be of more than all
        ((< -0.0005 share 0) "0.0%") ; no negative zero
        (t (format "%.1f%%" (* 100 share)))))

(defun dwell--format-count (count)
  "Return COUNT in two digits or more and a magnitude, as the server writes it."
  (let* ((magnitude (seq-find (lambda (magnitude) (>= count (* 0.9995 (car magnitude))))
                              '((1e15 . " P") (1e12 . " T") (1e9 . " G") (1e6 . " M") (1e3 . " k"))
                              '(1 . "")))
         (scaled (/ count (float (car magnitude)))))
    (concat (format (if (and (< scaled 9.95) (> (car magnitude) 1)) "%.1f" "%.0f") scaled)
            (cdr magnitude))))

(defun dwell--format-ratio (cpi)
  "Return CPI, cycles per instruction, as the server writes it."
  (format (cond ((>= cpi 99.5) "%.0f") ((>= cpi 0.995) "%.1f") (t "%.2f")) cpi))

(defun dwell--format-short-share (share)
  "Return SHARE in percent, in two digits, as the server writes it at a line's end."
  (let ((percent (* 100 share)))
    (cond ((< 0 percent 0.05) "<0.1 %")
          ((< percent 9.95) (format "%.1f %%" percent))
          (t (format "%.0f %%" percent)))))

(defun dwell--format-seconds (cost)
  "Return the CPU time of COST, or nil where it is not known."
  (when-let ((seconds (plist-get cost :seconds)))
    (cond ((>= seconds 9.95) (format "%.0f s" seconds))
          ((>= seconds 0.9995) (format "%.1f s" seconds))
          ((< 0 seconds 0.0005) "<1 ms")
          (t (format "%.0f ms" (* 1000 seconds))))))

(defun dwell--format-culprit (culprit)
  "Return CULPRIT and where it is."
  (concat (plist-get culprit :label) (dwell--format-place culprit)))

(defun dwell--format-place (culprit)
  "Return where CULPRIT is."
  (let ((line (plist-get culprit :line))
        (uri (plist-get culprit :uri)))
    (cond ((not line) "")
          ((or (null uri) (equal uri dwell--document)) (format " ← :%d" (1+ line)))
          (t (format " ← %s:%d" (file-name-nondirectory (dwell--file uri)) (1+ line))))))

(defun dwell--heat (share)
  "Return the face for SHARE."
  (cond ((>= share 0.1) 'dwell-heat-high)
        ((>= share 0.02) 'dwell-heat-medium)
        (t 'dwell-heat-low)))

(defun dwell--bar (share)
  "Return SHARE as a bar of four cells, in its heat face."
  (let* ((eighths (max 1 (round (* share 32))))
         (full (/ eighths 8))
         (bar (if (char-displayable-p ?▏)
                  (concat (make-string full ?█)
                          (let ((rest (% eighths 8)))
                            (unless (zerop rest) (string (aref " ▏▎▍▌▋▊▉" rest)))))
                (make-string (max 1 (round (* share 4))) ?#))))
    (propertize (string-pad bar 4) 'face (dwell--heat share))))

(defun dwell--join (&rest parts)
  "Join those of PARTS that are not nil."
  (string-join (delq nil parts) " · "))

(defun dwell--line-details (cost)
  "Return all that is known of the line of COST, in one line."
  (dwell--join (plist-get (plist-get cost :change) :details) (plist-get cost :details)))

(defun dwell--significant-p (change)
  "Return non-nil if CHANGE, as `DiffChange' has it, is none of chance."
  (eq t (plist-get change :significant))) ; false is `:json-false'

(defun dwell--change-face (change)
  "Return the face for CHANGE, as `DiffChange' has it."
  (cond ((not (dwell--significant-p change)) 'dwell-noise)
        ((> (plist-get change :change) 0) 'dwell-worse)
        (t 'dwell-better)))

(defun dwell--line-label (cost &optional room)
  "Return what stands at the end of the line of COST, in ROOM columns if it can."
  (let ((change (plist-get cost :change)))
    (concat (dwell--bar (plist-get cost :share))
            " "
            (if change
                (concat (propertize (plist-get change :label) 'face (dwell--change-face change))
                        (propertize (concat " · " (dwell--join (dwell--format-short-share (plist-get cost :share))
                                                               (dwell--format-seconds cost)))
                                    'face 'dwell-cost))
              (dwell--line-end cost (and room (- room 5)))))))

(defun dwell--line-end (cost room)
  "Return the server's words for the end of the line of COST, in ROOM columns.
ROOM is nil where there is enough.  What is estimated goes first, as it
does in the server's short form.  The cause has a face of its own."
  (let* ((parts (split-string (plist-get cost :lineEnd) " · "))
         (ties (plist-get cost :ties))
         (cause (and (not (seq-empty-p ties)) (plist-get (aref ties 0) :text)))
         (place (and cause (seq-position parts cause (lambda (part cause) (string-prefix-p cause part)))))
         (least (if place (1+ place) (min 2 (length parts)))))
    (cl-flet ((fits () (or (null room) (<= (string-width (string-join parts " · ")) room))))
      (while (and (> (length parts) least) (not (fits))) (setq parts (butlast parts)))
      (unless (fits)
        (setq parts (split-string (plist-get cost :label) " · ")
              place (and place (1- (length parts))))))
    (string-join (seq-map-indexed (lambda (part index)
                                    (propertize part 'face (if (eql index place) 'dwell-culprit 'dwell-cost)))
                                  parts)
                 (propertize " · " 'face 'dwell-cost))))

(provide 'dwell-words)
;;; dwell-words.el ends here
