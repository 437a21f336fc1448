#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <heddle/core/base/error.hpp>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Shared by the tests of every room: GoogleTest with its usual matchers, temporary directories, and checks of
/// messages.
namespace heddle {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pointwise;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// A new directory for one test, removed afterwards.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(TemporaryDirectory const&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory const&) = delete;

  fs::path const& path() const { return path_; }
  fs::path operator/(std::string const& name) const { return path_ / name; }
  /// Writes a file and returns its path.
  fs::path write(std::string const& name, std::string_view content) const;
  std::vector<std::string> names() const;

 private:
  fs::path path_;
};

std::string read_whole(fs::path const& path);
/// The names of everything in a directory, hidden files included, sorted.
std::vector<std::string> names_in(fs::path const& directory);
/// Its lines, without their ends.
std::vector<std::string> lines_of(std::string const& text);

/// The message of the exception of type `Expected` that `action` throws; "" where it throws none.
template <typename Expected, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (Expected const& error) {
    return error.what();
  }
  return "";
}

/// One string or several.
class Texts {
 public:
  Texts(char const* text) : texts_{text} {}
  Texts(std::string text) : texts_{std::move(text)} {}
  Texts(std::string_view text) : texts_{std::string(text)} {}
  Texts(std::initializer_list<std::string> texts) : texts_(texts) {}

  auto begin() const { return texts_.begin(); }
  auto end() const { return texts_.end(); }

 private:
  std::vector<std::string> texts_;
};

/// Fails unless `text` has each of `parts`; expect_lacks: if it has one.
void expect_contains(std::string_view text, Texts const& parts,
                     std::source_location const& place = std::source_location::current());
void expect_lacks(std::string_view text, Texts const& parts,
                  std::source_location const& place = std::source_location::current());

/// Fails unless `action`, called once, throws an Error, or one of this kind, whose message has each of `texts`.
void expect_error(std::function<void()> const& action, Texts const& texts,
                  std::source_location const& place = std::source_location::current());
void expect_config_error(std::function<void()> const& action, Texts const& texts,
                         std::source_location const& place = std::source_location::current());
void expect_data_error(std::function<void()> const& action, Texts const& texts,
                       std::source_location const& place = std::source_location::current());
void expect_usage_error(std::function<void()> const& action, Texts const& texts,
                        std::source_location const& place = std::source_location::current());

}  // namespace heddle
