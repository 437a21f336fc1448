#include "given_texts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/paths.hpp>
#include <heddle/io/text/text.hpp>
#include <iterator>
#include <map>
#include <ostream>
#include <set>
#include <span>
#include <system_error>

#include "files/file_descriptor.hpp"

namespace heddle {
namespace {

using Path = std::filesystem::path;

TextFiles parts_of(PrepareOptions::Paths const& paths, std::int64_t column = 0, std::int64_t columns = 0) {
  TextFiles parts;
  std::ranges::transform(paths, std::back_inserter(parts),
                         [&](Path const& path) { return TextFile(path, column, columns); });
  return parts;
}

/// A file without a name in the directory, for reading and writing.
FileDescriptor nameless_file(Path const& directory) {
  FileDescriptor file(directory, O_TMPFILE | O_RDWR);
  if (file.is_open()) {
    return file;
  }
  std::string name = (directory / ".heddle-text-XXXXXX").string();  // a file system without O_TMPFILE
  int const descriptor = ::mkstemp(name.data());
  if (descriptor < 0) {
    fail_with_errno(directory, "make a file for the copy of a pipe");
  }
  ::close(descriptor);
  FileDescriptor named(name, O_RDWR);
  ::unlink(name.c_str());
  if (!named.is_open()) {
    fail_with_errno(name, "open the file");
  }
  return named;
}

/// Copies a text until its end.
void copy_text(Path const& from, FileDescriptor const& to, Path const& directory) {
  FileDescriptor const text(from, O_RDONLY | O_NOCTTY);
  if (!text.is_open()) {
    throw DataError(open_problem(from, errno));
  }
  std::vector<std::uint8_t> block(std::size_t{1} << 20);
  for (std::int64_t offset = 0;;) {
    ssize_t const count = ::read(text.get(), block.data(), block.size());
    if (count == 0) {
      return;
    }
    if (count < 0 && errno != EINTR) {
      throw DataError("{}: cannot be read: {}", from.string(), std::strerror(errno));
    }
    if (count > 0) {
      write_at(to, directory / "the copy of a pipe", offset, std::span(block).first(static_cast<std::size_t>(count)));
      offset += count;
    }
  }
}

}  // namespace

std::string describe_files(TextFiles const& parts) {
  std::string const first = parts.front().path.string();
  return parts.size() == 1 ? first : fmt::format("{} and {} more", first, parts.size() - 1);
}

std::int64_t file_bytes(TextFiles const& parts) {
  std::int64_t bytes = 0;
  for (TextFile const& part : parts) {
    std::error_code failure;
    auto const size = std::filesystem::file_size(part.copy.empty() ? part.path : part.copy, failure);
    bytes += failure ? 0 : static_cast<std::int64_t>(size);
  }
  return bytes;
}

std::string GivenTexts::describe() const {
  bool const two = sides.size() > 1 && sides[0].front().path != sides[1].front().path;
  return describe_files(sides.front()) + (two ? " and " + describe_files(sides[1]) : "");
}

std::vector<GivenTexts> given_texts(PrepareOptions const& options) {
  std::vector<GivenTexts> texts;
  auto const add = [&](char const* name, PrepareOptions::Paths const& source, PrepareOptions::Paths const& target,
                       PrepareOptions::Paths const& tsv, PrepareOptions::Paths const& text) {
    if (!text.empty()) {
      texts.push_back({name, {parts_of(text)}});
    } else if (!tsv.empty()) {
      auto const [first, second] = options.columns.value_or(std::array<std::int64_t, 2>{1, 2});
      std::int64_t const columns = options.columns ? 0 : 2;
      texts.push_back({name, {parts_of(tsv, first, columns), parts_of(tsv, second, columns)}});
    } else if (!source.empty()) {
      texts.push_back({name, {parts_of(source), parts_of(target)}});
    }
  };
  add("train", options.source, options.target, options.tsv, options.text);
  add("valid", options.valid_source, options.valid_target, options.valid_tsv, options.valid_text);
  return texts;
}

std::int64_t pipes(std::vector<GivenTexts> const& texts) {
  std::set<Path> found;
  for (GivenTexts const& text : texts) {
    for (TextFiles const& side : text.sides) {
      for (TextFile const& part : side) {
        if (is_read_once(part.path)) {
          found.insert(text_path(part.path));
        }
      }
    }
  }
  return std::ssize(found);
}

CopiedTexts::CopiedTexts(std::vector<GivenTexts>& texts, Path const& directory, std::ostream& progress) {
  std::map<Path, Path> copies;
  std::vector<std::future<void>> copying;
  for (GivenTexts& text : texts) {
    for (TextFiles& side : text.sides) {
      for (TextFile& part : side) {
        if (!is_read_once(part.path)) {
          continue;
        }
        auto const [copy, is_new] = copies.try_emplace(text_path(part.path));
        if (is_new) {
          progress << fmt::format("copying {}, which can be read only once\n", part.path.string()) << std::flush;
          copy->second = fmt::format("/proc/self/fd/{}", copies_.emplace_back(nameless_file(directory)).get());
          copying.push_back(std::async(std::launch::async, [from = copy->first, to = copy->second, directory] {
            copy_text(from, FileDescriptor(to, O_WRONLY), directory);
          }));
        }
        part.copy = copy->second;
      }
    }
  }
  std::ranges::for_each(copying, &std::future<void>::wait);
  std::ranges::for_each(copying, &std::future<void>::get);
}

CopiedTexts::~CopiedTexts() = default;

}  // namespace heddle
