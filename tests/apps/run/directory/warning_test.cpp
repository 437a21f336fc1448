#include "run/directory/warning.hpp"

#include "test.hpp"

namespace heddle {
namespace {

TEST(Warning, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("a\x1b[31mb\r\x7f \xc2\x9b\xc2"), "a\\x1b[31mb\\x0d\\x7f \\u009b\xc2");
  EXPECT_EQ(printable("Wörter — \n\tplain\xc2\xa0"), "Wörter — \n\tplain\xc2\xa0");
}

TEST(Warning, ErrorsOfFilesNameThePathAndTheReason) {
  EXPECT_EQ(describe(std::runtime_error("text")), "text");
  std::filesystem::filesystem_error const error("cannot remove", "/x/y", std::make_error_code(std::errc::io_error));
  EXPECT_EQ(describe(error), "/x/y: Input/output error");
}

}  // namespace
}  // namespace heddle
