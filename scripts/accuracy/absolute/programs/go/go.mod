module indexer

go 1.19
