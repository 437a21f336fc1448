#include "inspection/page/page.hpp"

#include "test.hpp"

namespace heddle {
namespace {

constexpr char const* hostile =
    "</script><script>alert(1)</script><!-- <img src=x onerror=\"alert('2')\"> &amp; {{data}}";

TEST(Page, HasNoMarkupOfTheData) {
  std::string const page = assemble_page(hostile, boost::json::object{{"text", hostile}, {hostile, 1}});
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<!-- "), std::string::npos);
  EXPECT_NE(page.find("<title>&lt;/script&gt;"), std::string::npos);
  // As many elements as without it.
  auto const elements = [](std::string const& text) { return std::ranges::count(text, '<'); };
  EXPECT_EQ(elements(page), elements(assemble_page("", boost::json::object())));
}

TEST(Page, KeepsTheDataAsItWas) {
  boost::json::value const data = boost::json::object{{"text", hostile}, {"numbers", {1, -2.5, 0.125}}};
  std::string const safe = json_for_script(data);
  EXPECT_EQ(safe.find_first_of("<>&"), std::string::npos);
  EXPECT_EQ(boost::json::parse(safe), data);
}

TEST(Page, NeedsNoOtherFile) {
  std::string const page = assemble_page("title", boost::json::object());
  EXPECT_EQ(page.find("src=\""), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
  EXPECT_EQ(page.find("url("), std::string::npos);
  EXPECT_EQ(page.find("innerHTML"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
}

TEST(Matrix, IsBase64OfSixteenBitSteps) {
  std::vector<unsigned char> const bytes{'M', 'a', 'n', 'y', ' ', 'h'};
  EXPECT_EQ(base64(std::span(bytes)), "TWFueSBo");
  EXPECT_EQ(base64(std::span(bytes).first(5)), "TWFueSA=");
  EXPECT_EQ(base64(std::span(bytes).first(4)), "TWFueQ==");
  auto const matrix = matrix_to_json(std::vector<double>{-1, 3, 1, 7}, 2, {-1, 3});
  EXPECT_EQ(matrix.at("rows").as_int64(), 2);
  EXPECT_EQ(matrix.at("values").as_string(), base64(std::vector<unsigned char>{0, 0, 0xFF, 0xFF, 0, 0x80, 0xFF, 0xFF}));
  EXPECT_THROW(matrix_to_json(std::vector<double>{1, 2, 3}, 2, {}), Error);
  EXPECT_THROW(matrix_to_json(std::vector<double>{1, std::nan("")}, 1), Error);
}

}  // namespace
}  // namespace heddle
