;;; lint.el --- Runs package-lint over a package of several files  -*- lexical-binding: t; -*-

;;; Commentary:

;; emacs --batch -l lint.el MAIN.el OTHER.el...

;;; Code:

(require 'package-lint)

(let* ((main (expand-file-name (car command-line-args-left)))
       (package-lint-main-file main)
       (problems 0))
  (dolist (file command-line-args-left)
    (with-current-buffer (find-file-noselect file)
      (emacs-lisp-mode)
      (pcase-dolist (`(,line ,column ,type ,text) (package-lint-buffer))
        ;; Debian 12's package-lint is older than Emacs 28 and takes it for unreleased.
        (unless (string-match-p "uninstallable in all released Emacs" text)
          (setq problems (1+ problems))
          (message "%s:%d:%d: %s: %s" file line column type text)))))
  (kill-emacs (if (zerop problems) 0 1)))
;;; lint.el ends here
