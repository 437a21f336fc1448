#include "run/directory/json_text.hpp"

#include <boost/json.hpp>
#include <random>

#include "test.hpp"

namespace heddle {
namespace {

namespace json = boost::json;

TEST(JsonText, NumbersAreAsPeopleWriteThemAndNullWhereTheyAreNotFinite) {
  EXPECT_EQ(
      json_text({3.616267673897025, 0.0007, 30.0, 0.0, -2.5, 100000.0, 1e-9, 1e300, 7, -7, 18446744073709551615U}),
      "[3.616267673897025,0.0007,30,0,-2.5,100000,1e-9,1e300,7,-7,18446744073709551615]");
  double const infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_text({{"a", infinity}, {"b", {-infinity, std::nan("")}}, {"c", nullptr}, {"d", true}}),
            R"({"a":null,"b":[null,null],"c":null,"d":true})");
}

TEST(JsonText, IsWhatBoostReads) {
  json::value const value{{"quote\" and \x01", {1.5, json::object(), json::array(), "\xC3\xA4\n"}}, {"n", -0.1}};
  EXPECT_EQ(json::parse(json_text(value)), value);
  std::mt19937_64 random(1);  // NOLINT: the same each time
  for (int trial = 0; trial < 20000; ++trial) {
    double const number = std::bit_cast<double>(random());
    std::string const text = json_text(number);
    if (std::isfinite(number)) {
      EXPECT_EQ(std::strtod(text.c_str(), nullptr), number) << text;
    } else {
      EXPECT_EQ(text, "null");
    }
  }
}

TEST(JsonText, BitsOfANumberAreReadBackAsThatNumber) {
  std::mt19937_64 random(2);  // NOLINT: the same each time
  for (int trial = 0; trial < 20000; ++trial) {
    auto const bits = random();
    json::value const read = json::parse(json::serialize(json::value(bits_of(std::bit_cast<double>(bits)))));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(number_of_bits(read)), bits);
  }
}

}  // namespace
}  // namespace heddle
