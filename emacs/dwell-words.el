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

(defun dwell--format-cycles (cost)
  "Return the cycles of COST, or nil where the clock is unknown."
  (when-let ((cycles (plist-get cost :cycles)))
    (concat (dwell--format-count cycles) " cycles")))

(defun dwell--format-ratio (cpi)
  "Return CPI, cycles per instruction, as the server writes it."
  (format (cond ((>= cpi 99.5) "%.0f") ((>= cpi 0.995) "%.1f") (t "%.2f")) cpi))

(defun dwell--format-cpi (cost)
  "Return the CPI of COST, its best case beside it, or nil without an estimate."
  (when-let ((cpi (plist-get cost :cpi)))
    (concat "CPI " (if (equal (plist-get cost :confidence) "low") "~" "") (dwell--format-ratio cpi)
            (when-let ((best (plist-get cost :bestCaseCpi)))
              (format " (best %s)" (dwell--format-ratio best))))))

(defconst dwell--causes
  '(("slotting" . "slotting") ("dependency" . "operand not ready") ("functional-unit" . "unit busy")
    ("i-cache-miss" . "I-cache miss") ("itlb-miss" . "ITLB miss") ("d-cache-miss" . "D-cache miss")
    ("dtlb-miss" . "DTLB miss") ("write-buffer" . "write buffer full")
    ("synchronization" . "synchronization") ("branch-mispredict" . "branch mispredict")
    ("store-forwarding" . "store not forwarded") ("4k-aliasing" . "4K aliasing")
    ("system" . "system call or interrupt") ("page-fault" . "page fault"))
  "Causes as one reads them; others go by their name.")

(defun dwell--format-cause (cause)
  "Return CAUSE, as the protocol names it, as one reads it."
  (alist-get cause dwell--causes cause nil #'equal))

(defun dwell--format-culprit (culprit &optional stalled)
  "Return CULPRIT and where it is, unless on line STALLED, which it stalls."
  (let ((line (plist-get culprit :line))
        (uri (plist-get culprit :uri)))
    (concat (dwell--format-cause (plist-get culprit :cause))
            (cond ((or (not line) (and (equal uri dwell--document) (eql line stalled))) "")
                  ((or (null uri) (equal uri dwell--document)) (format " ← line %d" (1+ line)))
                  (t (format " ← %s:%d" (file-name-nondirectory (dwell--file uri)) (1+ line)))))))

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

(defun dwell--significant-p (change)
  "Return non-nil if CHANGE, as `DiffChange' has it, is none of chance."
  (eq t (plist-get change :significant))) ; false is `:json-false'

(defun dwell--change-face (change)
  "Return the face for CHANGE, as `DiffChange' has it."
  (cond ((not (dwell--significant-p change)) 'dwell-noise)
        ((> (plist-get change :change) 0) 'dwell-worse)
        (t 'dwell-better)))

(defun dwell--line-label (cost)
  "Return what stands at the end of the line of COST."
  (let ((culprits (plist-get cost :culprits)) (change (plist-get cost :change)))
    (concat (dwell--bar (plist-get cost :share))
            " "
            (when change
              (concat (propertize (plist-get change :label) 'face (dwell--change-face change))
                      (propertize " · " 'face 'dwell-cost)))
            (propertize (dwell--join (dwell--format-share (plist-get cost :share))
                                     (dwell--format-cycles cost)
                                     (unless change (dwell--format-cpi cost)))
                        'face 'dwell-cost)
            (unless (or change (seq-empty-p culprits))
              (concat (propertize " · " 'face 'dwell-cost)
                      (propertize (dwell--format-culprit (aref culprits 0) (plist-get cost :line))
                                  'face 'dwell-culprit))))))

(defun dwell--samples (samples)
  "Return SAMPLES, a plist by event, in words."
  (mapconcat (pcase-lambda (`(,event ,count))
               (format "%d samples of %s" count (substring (symbol-name event) 1)))
             (seq-partition samples 2) ", "))

(defun dwell--line-details (cost)
  "Return all that is known of the line of COST, in one line."
  (dwell--join
   (when-let ((change (plist-get cost :change))) (dwell--change-details change))
   (dwell--format-share (plist-get cost :share))
   (dwell--samples (plist-get cost :samples))
   (dwell--format-cycles cost)
   (when-let ((times (plist-get cost :executions)))
     (format "executed %s times" (dwell--format-count times)))
   (dwell--format-cpi cost)
   (concat (plist-get cost :confidence) " confidence")
   (unless (seq-empty-p (plist-get cost :culprits))
     (mapconcat (lambda (culprit)
                  (format "%s (%sup to %.0f%%)"
                          (dwell--format-culprit culprit (plist-get cost :line))
                          (if (equal (plist-get culprit :kind) "static") "static, " "")
                          (* 100 (plist-get culprit :shareMax))))
                (plist-get cost :culprits) "; "))))

(defun dwell--change-details (change)
  "Return all that is known of CHANGE, as `DiffChange' has it, in one line."
  (cl-flet ((pair (what before after)
              (when (and before after)
                (format "%s %s → %s" what (dwell--format-ratio before) (dwell--format-ratio after)))))
    (dwell--join
     (plist-get change :label)
     (format "%s → %s samples" (round (plist-get change :samplesBefore)) (round (plist-get change :samplesAfter)))
     (pair "CPI" (plist-get change :cpiBefore) (plist-get change :cpiAfter))
     (when-let ((ratio (plist-get change :countRatio)))
       (format "ran %s times as often" (dwell--format-ratio ratio)))
     (dwell--format-doubt change))))

(defun dwell--format-doubt (change)
  "Return how sure it is that CHANGE is none of chance."
  (let ((rate (plist-get change :falseDiscoveryRate)))
    (cond ((>= rate 0.05) (format "may be chance (p %.2f)" (plist-get change :p)))
          ((< rate 0.001) "chance below 0.1%")
          (t (format "chance below %.1f%%" (* 100 rate))))))

(provide 'dwell-words)
;;; dwell-words.el ends here
