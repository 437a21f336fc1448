#include "files/direct_file.hpp"

#include "file_faults.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::vector<std::uint8_t> content(std::size_t bytes) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t index = 0; index < bytes; ++index) {
    values[index] = static_cast<std::uint8_t>(index * 31 + index / 4096);
  }
  return values;
}

/// Writes in unequal pieces.
void write_file(std::filesystem::path const& path, std::span<std::uint8_t const> bytes) {
  DirectFile file(path);
  for (std::size_t piece = 1; !bytes.empty(); piece = piece * 5 % 1000003) {
    std::size_t const count = std::min(piece, bytes.size());
    file.append(bytes.first(count));
    bytes = bytes.subspan(count);
  }
  file.finish(true);
}

std::vector<std::uint8_t> read_file(std::filesystem::path const& path) {
  std::vector<std::uint8_t> all;
  read_from_disk(path, [&](std::span<std::uint8_t const> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

TEST(DirectFileTest, KeepsBytesOfAnyNumber) {
  TemporaryDirectory const directory;
  int number = 0;
  for (std::size_t const bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, DirectBuffer::bytes,
                                  2 * DirectBuffer::bytes + 4096, 3 * DirectBuffer::bytes + 1}) {
    auto const path = directory.path() / std::to_string(number++);
    write_file(path, content(bytes));
    EXPECT_EQ(std::filesystem::file_size(path), bytes);
    EXPECT_EQ(read_file(path), content(bytes));
  }
  EXPECT_THROW(DirectFile(directory.path() / "0"), Error);
}

TEST(DirectFileTest, AFaultIsAnErrorOrIsReadBack) {
  TemporaryDirectory const directory;
  auto const wanted = content(3 * DirectBuffer::bytes + 5000);
  int struck = 0;
  for (FaultKind const kind :
       {FaultKind::no_space, FaultKind::io_error, FaultKind::short_count, FaultKind::flipped_bit}) {
    bool happened = true;
    for (int number = 0; happened; ++number) {
      auto const path = directory.path() / "file";
      bool failed = false;
      {
        FileFault const fault(FileCall::pwrite, kind, number);
        try {
          write_file(path, wanted);
        } catch (Error const&) {
          failed = true;
        }
        happened = fault.happened();
      }
      bool const harmful = happened && kind != FaultKind::short_count;
      EXPECT_EQ(failed, harmful && kind != FaultKind::flipped_bit);
      EXPECT_EQ(failed || read_file(path) != wanted, harmful);
      struck += happened ? 1 : 0;
      std::filesystem::remove(path);
    }
  }
  EXPECT_GE(struck, 16);  // three whole buffers and a rest, in four ways
}

}  // namespace
}  // namespace heddle
