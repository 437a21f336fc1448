#include <cstdlib>
#include <heddle/core/base/cpu_level.hpp>

#include "test.hpp"

namespace heddle {
namespace {

/// Sets HEDDLE_CPU_LEVEL during its lifetime.
class LevelVariable {
 public:
  explicit LevelVariable(std::string const& value) {
    char const* const before = std::getenv(name);
    was_set_ = before != nullptr;
    before_ = was_set_ ? before : "";
    setenv(name, value.c_str(), 1);
  }
  ~LevelVariable() { was_set_ ? setenv(name, before_.c_str(), 1) : unsetenv(name); }
  LevelVariable(LevelVariable const&) = delete;
  LevelVariable& operator=(LevelVariable const&) = delete;

 private:
  static constexpr char const* name = "HEDDLE_CPU_LEVEL";
  bool was_set_;
  std::string before_;
};

TEST(CpuLevelTest, ALevelIsReadByItsName) {
#if defined(__x86_64__)
  CpuLevel const highest = CpuLevel::v4_amx;
  EXPECT_EQ(name_of(CpuLevel::baseline), "x86-64-v2");
#elif defined(__aarch64__)
  CpuLevel const highest = CpuLevel::v3;
  EXPECT_EQ(name_of(CpuLevel::baseline), "armv8-a");
#else
  CpuLevel const highest = CpuLevel::baseline;
#endif
  for (CpuLevel level = CpuLevel::baseline; level <= highest;
       level = static_cast<CpuLevel>(static_cast<int>(level) + 1)) {
    EXPECT_EQ(parse_cpu_level(name_of(level), "here"), level);
  }
  expect_config_error([] { parse_cpu_level("v5", "here"); }, {"here is \"v5\"", std::string(name_of(highest))});
}

TEST(CpuLevelTest, TheVariableLowersTheLevel) {
  LevelVariable const lowest{std::string(name_of(CpuLevel::baseline))};
  EXPECT_EQ(usable_cpu_level(), CpuLevel::baseline);
}

TEST(CpuLevelTest, AnEmptyVariableCountsAsNone) {
  LevelVariable const empty("");
  EXPECT_EQ(usable_cpu_level(), detected_cpu_level());
}

TEST(CpuLevelTest, TheVariableCannotRaiseTheLevel) {
  if (detected_cpu_level() == cpu_levels.back()) {
    GTEST_SKIP() << "this processor has the highest level";
  }
#if defined(__x86_64__)
  LevelVariable const highest{std::string(name_of(cpu_levels.back()))};
  expect_config_error([] { usable_cpu_level(); }, "this processor has only");
#endif
}

}  // namespace
}  // namespace heddle
