#include <gtest/gtest-spi.h>

#include "test.hpp"

namespace heddle {
namespace {

TEST(Expectations, FailWhereATextIsMissingOrTheErrorIsAnother) {
  EXPECT_NONFATAL_FAILURE(expect_contains("abc", {"a", "x"}), "\"x\" is not in");
  EXPECT_NONFATAL_FAILURE(expect_lacks("abc", "b"), "\"b\" is in");
  EXPECT_NONFATAL_FAILURE(expect_error([] {}, ""), "nothing was thrown");
  EXPECT_NONFATAL_FAILURE(expect_error([] { throw Error("y"); }, "x"), "\"x\" is not in");
  EXPECT_NONFATAL_FAILURE(expect_config_error([] { throw DataError("x"); }, "x"), "another kind of error: x");
  EXPECT_NONFATAL_FAILURE(expect_data_error([] { throw UsageError("x"); }, "x"), "another kind of error: x");
  EXPECT_NONFATAL_FAILURE(expect_usage_error([] { throw ConfigError("x"); }, "x"), "another kind of error: x");
  expect_error([] { throw ConfigError("a b"); }, {"a", "b"});
}

}  // namespace
}  // namespace heddle
