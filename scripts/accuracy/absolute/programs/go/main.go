// Indexes a text and a table of objects, over and over: what services do with strings, maps, JSON, sorting and compression.
// indexer PASSES TEXT OBJECTS
package main

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

type object struct {
	ID     int     `json:"id"`
	Name   string  `json:"name"`
	Values []int   `json:"values"`
	Nested *nested `json:"nested"`
}

type nested struct {
	Kind  string  `json:"kind"`
	Score float64 `json:"score"`
}

var number = regexp.MustCompile(`[0-9]{2,5}`)

func index(text string) int {
	postings := map[string][]int{}
	for row, line := range strings.Split(text, "\n") {
		for _, word := range strings.Fields(line) {
			postings[word] = append(postings[word], row)
		}
	}
	words := make([]string, 0, len(postings))
	for word := range postings {
		words = append(words, word)
	}
	sort.Slice(words, func(a, b int) bool {
		left, right := len(postings[words[a]]), len(postings[words[b]])
		return left > right || left == right && words[a] < words[b]
	})
	return len(words[0]) + len(words)
}

func decode(encoded []byte) int {
	var objects []object
	if err := json.Unmarshal(encoded, &objects); err != nil {
		log.Fatal(err)
	}
	sum := 0
	for _, each := range objects {
		for _, value := range each.Values {
			sum += value
		}
		sum += len(each.Nested.Kind) + len(each.Name)
	}
	return sum
}

func pack(text string) int {
	var packed bytes.Buffer
	writer, err := flate.NewWriter(&packed, 6)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := writer.Write([]byte(text)); err != nil {
		log.Fatal(err)
	}
	writer.Close()
	return packed.Len()
}

func main() {
	passes, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	objects, err := os.ReadFile(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	check := 0
	for pass := 0; pass < passes; pass++ {
		sum := index(string(text)) + decode(objects) + pack(string(text)) + len(number.FindAllStringIndex(string(text), -1))
		check = (check*31 + sum) % 1000003
	}
	fmt.Println(check)
}
