#include "test.hpp"

#include <stdlib.h>

#include <iterator>
#include <system_error>

namespace heddle {
namespace {

template <class Expected>
void expect_thrown(std::function<void()> const& action, Texts const& texts, std::source_location const& place) {
  try {
    action();
  } catch (Expected const& error) {
    expect_contains(error.what(), texts, place);
    return;
  } catch (std::exception const& error) {
    ADD_FAILURE_AT(place.file_name(), static_cast<int>(place.line())) << "another kind of error: " << error.what();
    return;
  }
  ADD_FAILURE_AT(place.file_name(), static_cast<int>(place.line())) << "nothing was thrown";
}

void expect_each(bool wanted, std::string_view text, Texts const& parts, std::source_location const& place) {
  for (std::string const& part : parts) {
    if ((text.find(part) != std::string_view::npos) != wanted) {
      ADD_FAILURE_AT(place.file_name(), static_cast<int>(place.line()))
          << "\"" << part << (wanted ? "\" is not in:\n" : "\" is in:\n") << text;
    }
  }
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "heddle-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("cannot make a temporary directory");
  }
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path TemporaryDirectory::write(std::string const& name, std::string_view content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return path_ / name;
}

std::vector<std::string> TemporaryDirectory::names() const {
  return names_in(path_);
}

std::string read_whole(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(fs::path const& directory) {
  std::vector<std::string> names;
  for (auto const& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

void expect_contains(std::string_view text, Texts const& parts, std::source_location const& place) {
  expect_each(true, text, parts, place);
}

void expect_lacks(std::string_view text, Texts const& parts, std::source_location const& place) {
  expect_each(false, text, parts, place);
}

void expect_error(std::function<void()> const& action, Texts const& texts, std::source_location const& place) {
  expect_thrown<Error>(action, texts, place);
}

void expect_config_error(std::function<void()> const& action, Texts const& texts, std::source_location const& place) {
  expect_thrown<ConfigError>(action, texts, place);
}

void expect_data_error(std::function<void()> const& action, Texts const& texts, std::source_location const& place) {
  expect_thrown<DataError>(action, texts, place);
}

void expect_usage_error(std::function<void()> const& action, Texts const& texts, std::source_location const& place) {
  expect_thrown<UsageError>(action, texts, place);
}

}  // namespace heddle
