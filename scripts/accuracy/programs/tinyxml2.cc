// tinyxml2: FILE parsed, walked and printed again. Prints what was counted.
#include "file.h"
#include "tinyxml2.h"

struct Counter : tinyxml2::XMLVisitor {
  long elements = 0, attributes = 0, letters = 0;
  bool VisitEnter(const tinyxml2::XMLElement &, const tinyxml2::XMLAttribute *attribute) override {
    elements++;
    for (; attribute; attribute = attribute->Next()) attributes += attribute->Value()[0];
    return true;
  }
  bool Visit(const tinyxml2::XMLText &text) override {
    for (const char *at = text.Value(); *at; at++) letters += *at == 'e';
    return true;
  }
};

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  size_t size;
  const char *bytes = read_file(argv[1], &size);
  tinyxml2::XMLDocument document;
  if (document.Parse(bytes, size) != tinyxml2::XML_SUCCESS) return 1;
  Counter counter;
  document.Accept(&counter);
  tinyxml2::XMLPrinter printer;
  document.Print(&printer);
  printf("%ld %ld %ld %zu\n", counter.elements, counter.attributes, counter.letters, (size_t)printer.CStrSize());
}
