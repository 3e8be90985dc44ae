;;; pack.el --- Makes and tries the package  -*- lexical-binding: t; -*-

;;; Commentary:

;; `dwell-pack-describe' writes dwell-pkg.el, which a tarball of several files must have;
;; `dwell-pack-try' installs a tarball into $HOME, a new one, and looks for the commands.

;;; Code:

(require 'package)

(defun dwell-pack-describe ()
  "Write the package description of the first argument, the main file, to the second."
  (pcase-let ((`(,main ,description) command-line-args-left))
    (with-current-buffer (find-file-noselect main)
      (package-generate-description-file (package-buffer-info) (expand-file-name description)))
    ;; Emacs 30 warns of a file that does not say so; Emacs 28 does not write it.
    (with-temp-file description
      (insert-file-contents description)
      (unless (search-forward "lexical-binding" (line-end-position) t)
        (search-forward "no-byte-compile: t")
        (insert "; lexical-binding: t"))))
  (kill-emacs 0))

(defun dwell-pack-try ()
  "Install the tarball that is the first argument and look for its commands."
  (setq package-user-dir (expand-file-name "~/elpa"))
  (package-initialize)
  (let ((inhibit-message t))
    (package-install-file (expand-file-name (car command-line-args-left))))
  (when-let ((log (get-buffer "*Compile-Log*")))
    (with-current-buffer log
      (when (string-match-p "Warning:\\|Error:" (buffer-string))
        (error "Compiling the package warned: %s" (buffer-string)))))
  (require 'dwell)
  (unless (string-prefix-p package-user-dir (locate-library "dwell"))
    (error "Another dwell was loaded: %s" (locate-library "dwell")))
  ;; Compiling has loaded them already: what a later Emacs sees is in the autoloads.
  (with-temp-buffer
    (insert-file-contents (expand-file-name "dwell-autoloads.el" (file-name-directory (locate-library "dwell"))))
    (dolist (command '(dwell-mode global-dwell-mode dwell-hot-procedures dwell-listing dwell-record
                                  dwell-record-cancel dwell-record-process dwell-import-perf
                                  dwell-epochs dwell-select-epoch dwell-new-epoch dwell-compare dwell-diff
                                  dwell-summary dwell-callers dwell-callees dwell-graph dwell-sql dwell-count-calls dwell-set-hints dwell-legend
                                  dwell-restart))
      (goto-char (point-min))
      (unless (and (commandp command) (search-forward (format "(autoload '%s \"" command) nil t))
        (error "%s is not autoloaded" command))))
  (message "installs from %s" (file-name-nondirectory (car command-line-args-left)))
  (kill-emacs 0))

(provide 'pack)
;;; pack.el ends here
