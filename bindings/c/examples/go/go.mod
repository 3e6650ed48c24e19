module pando.example/words

go 1.21
