// double-conversion: FILE's numbers parsed and printed in three ways. Prints one checksum.
#include "double-conversion/double-conversion.h"
#include "file.h"

using namespace double_conversion;

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  size_t size;
  const char *at = read_file(argv[1], &size), *end = at + size;
  StringToDoubleConverter parser(StringToDoubleConverter::ALLOW_TRAILING_JUNK, 0.0, 0.0, "inf", "nan");
  const DoubleToStringConverter &printer = DoubleToStringConverter::EcmaScriptConverter();
  unsigned long sum = 0;
  while (at < end) {
    int used;
    double value = parser.StringToDouble(at, (int)(end - at > 40 ? 40 : end - at), &used);
    char text[128];
    StringBuilder builder(text, sizeof text);
    printer.ToShortest(value, &builder);
    printer.ToPrecision(value, 17, &builder);
    printer.ToExponential(value, 5, &builder);
    for (int i = builder.position(); i-- > 0;) sum = sum * 31 + (unsigned char)text[i];
    at += used + 1;
  }
  printf("%lu\n", sum);
}
