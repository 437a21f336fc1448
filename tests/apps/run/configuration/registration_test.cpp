#include "run/configuration/registration.hpp"

#include "test.hpp"

namespace heddle {
namespace {

constexpr char const* digest_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class TrustedPluginsTest : public ::testing::Test {
 protected:
  std::string refusal(PluginTrust const& trust) const {
    return message_of<UntrustedPluginsError>([&] { trusted_plugins(named_, trust, "runs/x"); });
  }
  std::vector<std::string> loaded(PluginTrust const& trust) const {
    return trusted_plugins(named_, trust, "runs/x").paths;
  }

  TemporaryDirectory directory_;
  std::string first_ = directory_.write("first.so", "abc");
  std::string second_ = directory_ / "second.so";
  PluginsConfig named_{.paths = {first_, second_}, .sha256 = {}};
};

TEST_F(TrustedPluginsTest, RefusesThoseThatNobodyNamedWithTheirDigests) {
  expect_contains(refusal({}), {"runs/x names plug-ins", first_ + " (sha256 " + digest_of_abc,
                                second_ + ": does not exist", "--plugin PATH/second.so", "--trust-plugins"});
  EXPECT_THAT(refusal({.given = {first_}}), AllOf(Not(HasSubstr(first_)), HasSubstr(second_)));
  expect_contains(refusal({.given = {"elsewhere/third.so"}}), first_);
}

TEST_F(TrustedPluginsTest, TakesAGivenFileOfTheSameName) {
  EXPECT_THAT(loaded({.given = {"mine/second.so", "more.so", "mine/first.so"}}),
              ElementsAre("mine/first.so", "mine/second.so", "more.so"));
  named_.paths = {"a/same.so", "b/same.so"};
  EXPECT_THAT(loaded({.given = {"c/same.so", "a/same.so"}}), ElementsAre("a/same.so", "c/same.so"));
}

TEST_F(TrustedPluginsTest, TakesAllWhereTheDirectoryIsTrusted) {
  expect_config_error([&] { loaded({.all = true}); }, {"second.so, which does not exist", "--plugin PATH/second.so"});
  directory_.write("second.so", "");
  EXPECT_THAT(loaded({.all = true}), ElementsAre(first_, second_));
}

TEST_F(TrustedPluginsTest, NeedsNothingWhereTheCheckpointNamesNone) {
  named_.paths.clear();
  EXPECT_THAT(loaded({}), ElementsAre());
  EXPECT_THAT(loaded({.given = {"more.so"}}), ElementsAre("more.so"));
}

}  // namespace
}  // namespace heddle
