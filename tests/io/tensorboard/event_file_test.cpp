#include <zlib.h>

#include <cstring>
#include <heddle/io/tensorboard/event_file.hpp>
#include <iterator>

#include "test.hpp"

namespace heddle {
namespace {

using testing::DoubleEq;

// A reader of event files that shares nothing with the writer but the format's description.

/// A reflected CRC of 32 bits, bit by bit; by default CRC-32C.
std::uint32_t checksum(std::string const& bytes, std::uint32_t polynomial = 0x82f63b78U) {
  std::uint32_t crc = ~0U;
  for (unsigned char const byte : bytes) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bool const odd = ((crc ^ (byte >> bit)) & 1U) != 0;
      crc = (crc >> 1U) ^ (odd ? polynomial : 0U);
    }
  }
  return ~crc;
}

template <class Value>
Value value_at(std::string const& bytes, std::size_t place) {
  Value value{};
  if (place + sizeof value > bytes.size()) {
    throw std::runtime_error("the file ends too early");
  }
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

void require_checksum(std::string const& bytes, std::uint32_t masked) {
  std::uint32_t const rotated = masked - 0xa282ead8U;
  if (((rotated >> 17U) | (rotated << 15U)) != checksum(bytes)) {
    throw std::runtime_error("a checksum is wrong");
  }
}

std::vector<std::string> records_of(std::string const& file) {
  std::vector<std::string> records;
  for (std::size_t place = 0; place < file.size();) {
    auto const length = value_at<std::uint64_t>(file, place);
    require_checksum(file.substr(place, 8), value_at<std::uint32_t>(file, place + 8));
    records.push_back(file.substr(place + 12, length));
    require_checksum(records.back(), value_at<std::uint32_t>(file, place + 12 + length));
    place += 16 + length;
  }
  return records;
}

/// A message's fields by number: integers as they are, other values as their bytes.
struct Fields {
  std::map<int, std::uint64_t> integers;
  std::map<int, std::vector<std::string>> bytes;

  std::string const& one(int field) const {
    if (bytes.at(field).size() != 1) {
      throw std::runtime_error("a field occurs twice");
    }
    return bytes.at(field).front();
  }
  double number(int field) const { return value_at<double>(one(field), 0); }
};

std::uint64_t varint(std::string const& bytes, std::size_t& place) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    auto const byte = static_cast<unsigned char>(bytes.at(place++));
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) {
      return value;
    }
  }
}

Fields fields_of(std::string const& message) {
  Fields fields;
  for (std::size_t place = 0; place < message.size();) {
    std::uint64_t const key = varint(message, place);
    auto const field = static_cast<int>(key >> 3U);
    std::uint64_t const type = key & 7U;
    if (type == 0) {
      fields.integers[field] = varint(message, place);
      continue;
    }
    std::size_t const size = type == 1 ? 8 : type == 5 ? 4 : varint(message, place);
    if (place + size > message.size()) {
      throw std::runtime_error("a field is longer than its message");
    }
    fields.bytes[field].push_back(message.substr(place, size));
    place += size;
  }
  return fields;
}

std::vector<double> numbers_in(std::string const& packed) {
  std::vector<double> numbers;
  for (std::size_t place = 0; place < packed.size(); place += sizeof(double)) {
    numbers.push_back(value_at<double>(packed, place));
  }
  return numbers;
}

/// The chunks of a PNG file by type, each with a right checksum.
std::map<std::string, std::string> chunks_of(std::string const& file) {
  if (!file.starts_with("\x89PNG\r\n\x1a\n")) {
    throw std::runtime_error("no signature");
  }
  auto const big_endian = [&](std::size_t place) { return __builtin_bswap32(value_at<std::uint32_t>(file, place)); };
  std::map<std::string, std::string> chunks;
  for (std::size_t place = 8; place < file.size();) {
    std::size_t const size = big_endian(place);
    std::string const checked = file.substr(place + 4, 4 + size);
    if (big_endian(place + 8 + size) != checksum(checked, 0xedb88320U)) {
      throw std::runtime_error("a checksum is wrong");
    }
    chunks[checked.substr(0, 4)] = checked.substr(4);
    place += 12 + size;
  }
  return chunks;
}

class EventFileTest : public testing::Test {
 protected:
  /// The events of the file but for its first two, which are checked here.
  std::vector<Fields> events(std::int64_t first_step) {
    file_.flush();
    std::ifstream file(file_.path(), std::ios::binary);
    std::string const bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<Fields> all;
    for (std::string const& record : records_of(bytes)) {
      all.push_back(fields_of(record));
      EXPECT_GT(all.back().number(1), 1.5e9) << "seconds since 1970";
    }
    EXPECT_EQ(all.at(0).one(3), "brain.Event:2");
    EXPECT_EQ(static_cast<std::int64_t>(all.at(1).integers.at(2)), first_step);
    EXPECT_EQ(fields_of(all.at(1).one(7)).integers.at(1), 1U) << "SessionLog.START";
    all.erase(all.begin(), all.begin() + 2);
    return all;
  }
  static Fields value_of(Fields const& event) { return fields_of(fields_of(event.one(5)).one(1)); }

  TemporaryDirectory directory_;
  EventFile file_{directory_.path() / "tensorboard", 300};
};

TEST_F(EventFileTest, ChecksumIsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);  // RFC 3720's polynomial; the check value of its catalogue entry
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
}

TEST_F(EventFileTest, NamesAreTensorBoardsAndAscend) {
  EXPECT_TRUE(file_.path().filename().string().starts_with("events.out.tfevents."));
  EventFile const later(directory_.path() / "tensorboard", 1);
  EXPECT_LT(file_.path(), later.path());
}

TEST_F(EventFileTest, Scalars) {
  file_.scalar(300, "train/loss", 2.5);
  file_.scalar(std::int64_t{1} << 40, "train/loss", std::numeric_limits<double>::infinity());
  auto const all = events(300);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].integers.at(2), 300U);
  EXPECT_EQ(value_of(all[0]).one(1), "train/loss");
  EXPECT_EQ(value_at<float>(value_of(all[0]).one(2), 0), 2.5F);
  EXPECT_EQ(all[1].integers.at(2), std::uint64_t{1} << 40);
  EXPECT_EQ(value_at<float>(value_of(all[1]).one(2), 0), std::numeric_limits<float>::infinity());
}

TEST_F(EventFileTest, HistogramsCountEveryFiniteValueOnce) {
  std::vector<double> values{std::nan(""), 3, 0, 1, 1};
  for (int index = 0; index < 40; ++index) {
    values.push_back(0.07 * index);
  }
  file_.histogram(1, "norms", values);
  auto const all = events(300);
  ASSERT_THAT(all, SizeIs(1));
  Fields const histogram = fields_of(value_of(all[0]).one(5));
  EXPECT_EQ(histogram.number(1), 0);
  EXPECT_EQ(histogram.number(2), 3);
  EXPECT_EQ(histogram.number(3), 44);
  EXPECT_THAT(histogram.number(4), DoubleEq(5 + 0.07 * 780));
  EXPECT_NEAR(histogram.number(5), 11 + 0.0049 * 20540, 1e-9);
  auto const limits = numbers_in(histogram.one(6));
  auto const counts = numbers_in(histogram.one(7));
  ASSERT_EQ(limits.size(), counts.size());
  EXPECT_EQ(limits.back(), 3);
  for (std::size_t bucket = 0; bucket < limits.size(); ++bucket) {
    double const lower = bucket == 0 ? -1 : limits[bucket - 1];
    double expected = 0;
    for (double const value : values) {
      expected += value > lower && value <= limits[bucket] ? 1 : 0;
    }
    EXPECT_EQ(counts[bucket], expected) << "bucket " << bucket;
  }
}

TEST_F(EventFileTest, HistogramsOfEqualValuesAndOfNone) {
  file_.histogram(1, "norms", std::vector<double>{2, 2});
  file_.histogram(2, "norms", std::vector<double>{});
  auto const all = events(300);
  ASSERT_THAT(all, SizeIs(1));
  Fields const histogram = fields_of(value_of(all[0]).one(5));
  EXPECT_THAT(numbers_in(histogram.one(6)), ElementsAre(2));
  EXPECT_THAT(numbers_in(histogram.one(7)), ElementsAre(2));
}

TEST_F(EventFileTest, Text) {
  std::string const words = "| Source | Ziel |\nzweiundvierzig \xc3\xbc" + std::string(300, 'x');
  file_.text(7, "valid/translations", words);
  auto const all = events(300);
  ASSERT_THAT(all, SizeIs(1));
  Fields const value = value_of(all[0]);
  Fields const tensor = fields_of(value.one(8));
  EXPECT_EQ(tensor.integers.at(1), 7U) << "DT_STRING";
  EXPECT_EQ(fields_of(fields_of(tensor.one(2)).one(2)).integers.at(1), 1U) << "one text";
  EXPECT_EQ(tensor.one(8), words);
  EXPECT_EQ(fields_of(fields_of(value.one(9)).one(1)).one(1), "text") << "the plug-in that shows it";
}

TEST_F(EventFileTest, Images) {
  GreyImage const image{3, 2, {0, 128, 255, 1, 2, 3}};
  file_.image(7, "attention/decoder", image);
  auto const all = events(300);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(value_of(all[0]).one(1), "attention/decoder");
  Fields const content = fields_of(value_of(all[0]).one(4));
  EXPECT_EQ(content.integers, (std::map<int, std::uint64_t>{{1, 2}, {2, 3}, {3, 1}})) << "height, width, one channel";
  auto const chunks = chunks_of(content.one(4));
  using std::string_literals::operator""s;
  EXPECT_EQ(chunks.at("IHDR"), "\0\0\0\3\0\0\0\2\x08\0\0\0\0"s);
  EXPECT_EQ(chunks.at("IEND"), "");
  std::string const& data = chunks.at("IDAT");
  std::string rows(100, 'x');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<Bytef const*>(data.data()),
                       data.size()),
            Z_OK);
  EXPECT_EQ(rows.substr(0, size), "\0\0\x80\xff\0\1\2\3"s);
}

TEST_F(EventFileTest, ImagesWithoutPixelsOrWithOthersAreRefused) {
  EXPECT_THROW(file_.image(1, "a", {}), Error);
  EXPECT_THROW(file_.image(1, "a", {2, 2, {1, 2, 3}}), Error);
  EXPECT_THROW(file_.image(1, "a", {-2, -1, {1, 2}}), Error);
}

TEST_F(EventFileTest, ADamagedFileIsSeen) {
  file_.scalar(1, "train/loss", 1);
  file_.flush();
  std::fstream(file_.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(-5, std::ios::end).put('x');
  EXPECT_THROW(events(300), std::runtime_error);
}

}  // namespace
}  // namespace heddle
