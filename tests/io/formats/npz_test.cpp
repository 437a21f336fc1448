#include <zlib.h>

#include <heddle/io/formats/npz.hpp>

#include "formats/npz_header.hpp"
#include "test.hpp"

namespace heddle {
namespace {

std::span<std::uint8_t const> bytes_of_text(std::string const& text) {
  return {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()};
}

class NpzTest : public testing::Test {
 protected:
  static std::vector<float> values(NpzFile const& file, std::string const& name) {
    std::vector<float> values(static_cast<std::size_t>(file.tensors().at(name).elements()));
    file.read(name, {0, std::ssize(values)}, values);
    return values;
  }

  /// A file with the array "a" of 6 numbers and the text "t".
  fs::path small() const {
    fs::path const path = directory_ / "small.npz";
    fs::remove(path);
    NpzWriter writer(path);
    std::vector<float> numbers(6);
    std::iota(numbers.begin(), numbers.end(), 1.F);
    writer.begin("a", "<f4", {2, 3});
    writer.write({reinterpret_cast<std::uint8_t const*>(numbers.data()), 0});
    writer.write({reinterpret_cast<std::uint8_t const*>(numbers.data()), 24});
    writer.begin("t", "|i1", {3});
    writer.write(bytes_of_text("abc"));
    writer.finish();
    return path;
  }

  /// The message with which an archive is refused: of files with these records and these bytes of their own.
  std::string refusal(std::vector<std::pair<ZipRecord, std::string>> const& files) const {
    std::string bytes;
    std::string directory;
    for (auto const& [record, content] : files) {
      bytes += content;
      directory += zip_directory_record(record);
    }
    ZipDirectory const place{std::ssize(bytes), std::ssize(directory), std::ssize(files)};
    return refusal_of(bytes + directory + zip_end(place));
  }
  std::string refusal_of(std::string const& bytes) const {
    fs::remove(directory_ / "forged.npz");  // file systems sync a file that is replaced
    fs::path const path = directory_.write("forged.npz", bytes);
    return message_of<DataError>([&] { NpzFile::open(path); });
  }
  static std::uint32_t checksum_of(std::string const& text) {
    return static_cast<std::uint32_t>(crc32(0, bytes_of_text(text).data(), static_cast<uInt>(text.size())));
  }

  TemporaryDirectory directory_;
};

TEST_F(NpzTest, ArraysAreWhatWasWritten) {
  NpzFile const file = NpzFile::open(small());
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors().at("a").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(values(file, "a"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::vector<float> part(2);
  file.read("a", {3, 5}, part);
  EXPECT_EQ(part, (std::vector<float>{4, 5}));
  EXPECT_EQ(file.bytes("t"), "abc");
  EXPECT_THROW(file.read("a", {5, 7}, part), Error);
  EXPECT_THROW(file.read("t", {0, 2}, part), DataError);
  EXPECT_THROW(file.bytes("b"), DataError);
}

TEST_F(NpzTest, DeflatedArraysOfNumPyAreRead) {
  NpzFile const file = NpzFile::open(fs::path(HEDDLE_TEST_DATA) / "exchange" / "deflated.npz");
  std::vector<float> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0.F);
  EXPECT_EQ(values(file, "numbers"), numbers);
  EXPECT_EQ(values(file, "turned"), std::vector<float>(6, 1));
  EXPECT_EQ(values(file, "one"), std::vector<float>{7});
  EXPECT_TRUE(file.tensors().at("one").shape.empty());
  EXPECT_EQ(values(file, "none"), std::vector<float>());
  EXPECT_EQ(file.bytes("text"), "a text");
  std::vector<float> part(3);
  file.read("numbers", {4, 7}, part);
  EXPECT_EQ(part, (std::vector<float>{4, 5, 6}));
}

TEST_F(NpzTest, ACutFileIsRefused) {
  for (fs::path const& path : {small(), fs::path(HEDDLE_TEST_DATA) / "exchange" / "deflated.npz"}) {
    std::string const whole = read_whole(path);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_NE(refusal_of(whole.substr(0, length)), "") << length;
    }
    EXPECT_NE(refusal_of(whole + "x"), "");
  }
}

TEST_F(NpzTest, AChangedByteIsRefusedOrDoesNotMatter) {
  for (fs::path const& path : {small(), fs::path(HEDDLE_TEST_DATA) / "exchange" / "deflated.npz"}) {
    std::string const whole = read_whole(path);
    NpzFile const before = NpzFile::open(path);
    for (std::size_t place = 0; place < whole.size(); ++place) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ 0x11);
      fs::remove(directory_ / "changed.npz");
      fs::path const other = directory_.write("changed.npz", changed);
      try {
        NpzFile const after = NpzFile::open(other);
        for (auto const& [name, tensor] : before.tensors()) {
          ASSERT_TRUE(after.tensors().contains(name)) << place;
          ASSERT_EQ(after.tensors().at(name).shape, tensor.shape) << place;
          ASSERT_EQ(after.bytes(name), before.bytes(name)) << place;
        }
      } catch (DataError const&) {
      }
    }
  }
}

TEST_F(NpzTest, ForgedArchivesAreRefused) {
  std::string const content = npy_header("<f4", {1}) + std::string(4, '\0');
  ZipRecord const good{"a.npy", false, checksum_of(content), std::ssize(content), std::ssize(content), 0};
  std::string const file = zip_local_header(good) + content;
  EXPECT_EQ(refusal({{good, file}}), "");

  ZipRecord bomb = good;
  bomb.deflated = true;
  bomb.bytes = std::int64_t{1} << 31;
  expect_contains(refusal({{bomb, zip_local_header(bomb) + content}}), "lengths that cannot be");

  bomb.bytes = std::int64_t{20} << 20;
  bomb.stored_bytes = bomb.bytes / 200;
  std::string const zeros = zip_local_header(bomb) + std::string(static_cast<std::size_t>(bomb.stored_bytes), '\0');
  expect_contains(refusal({{bomb, zeros}}), "lengths that cannot be");

  ZipRecord wrong = good;
  wrong.checksum ^= 1;
  expect_contains(refusal({{wrong, zip_local_header(wrong) + content}}), "checksum");

  // A file that has another one in it.
  ZipRecord outer{"b.npy", false, 0, 0, 0, 0};
  std::string const inner_content = npy_header("|i1", {std::ssize(file)}) + file;
  outer.checksum = checksum_of(inner_content);
  outer.stored_bytes = outer.bytes = std::ssize(inner_content);
  std::string const outer_file = zip_local_header(outer) + inner_content;
  ZipRecord inner = good;
  inner.offset = std::ssize(outer_file) - std::ssize(file);
  EXPECT_EQ(refusal({{outer, outer_file}}), "");
  expect_contains(refusal({{outer, outer_file}, {inner, ""}}), "overlap");

  ZipRecord again = good;
  again.offset = std::ssize(file);
  expect_contains(refusal({{good, file}, {again, file}}), "is not a .npy array");
  ZipRecord text = good;
  text.name = "a.txt";
  expect_contains(refusal({{text, zip_local_header(text) + content}}), "a.txt");

  ZipRecord elsewhere = good;
  elsewhere.offset = 1;
  expect_contains(refusal({{elsewhere, file}}), "does not begin where");
}

TEST_F(NpzTest, ForgedArraysAreRefused) {
  auto const refusal_of_array = [&](std::string const& content) {
    ZipRecord const record{"a.npy", false, checksum_of(content), std::ssize(content), std::ssize(content), 0};
    return refusal({{record, zip_local_header(record) + content}});
  };
  EXPECT_EQ(refusal_of_array(npy_header("<f4", {2}) + std::string(8, '\0')), "");
  for (std::string const& content :
       {npy_header("<f4", {2}) + std::string(9, '\0'), npy_header("<f4", {3}) + std::string(8, '\0'),
        npy_header("<f4", {-2, -1}) + std::string(8, '\0'), npy_header(">f4", {2}) + std::string(8, '\0'),
        npy_header("|O8", {1}) + std::string(8, '\0'),
        npy_header("<f4", {std::int64_t{1} << 40, std::int64_t{1} << 40}), std::string("\x93NUMPY\1\0", 8),
        std::string()}) {
    EXPECT_NE(refusal_of_array(content), "") << content;
  }
  std::string turned = npy_header("<f4", {2}) + std::string(8, '\0');
  turned.replace(turned.find("False"), 5, "True ");
  expect_contains(refusal_of_array(turned), "C's order");
}

TEST_F(NpzTest, ValuesThatAreNotFiniteAreRefused) {
  fs::path const path = directory_ / "infinite.npz";
  NpzWriter writer(path);
  float const infinite = std::numeric_limits<float>::infinity();
  writer.begin("a", "<f4", {1});
  writer.write({reinterpret_cast<std::uint8_t const*>(&infinite), sizeof infinite});
  writer.finish();
  expect_data_error([&] { values(NpzFile::open(path), "a"); }, "inf");
}

TEST_F(NpzTest, AnArrayIsWrittenWholeOrNoFileAppears) {
  fs::path const path = directory_ / "part.npz";
  {
    NpzWriter writer(path);
    writer.begin("a", "|i1", {3});
    writer.write(bytes_of_text("ab"));
    EXPECT_THROW(writer.finish(), Error);
    EXPECT_THROW(writer.write(bytes_of_text("cd")), Error);
  }
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  NpzWriter large(path);
  EXPECT_THROW(large.begin("a", "<f4", {std::int64_t{1} << 30}), DataError);
}

}  // namespace
}  // namespace heddle
