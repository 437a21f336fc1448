#include <sys/stat.h>

#include <heddle/io/formats/safetensors.hpp>

#include "test.hpp"

namespace heddle {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  /// A file's bytes: the header, its length before it, and zeros after it.
  static std::string file_of(std::string const& header, std::size_t data_bytes) {
    std::string length(8, '\0');
    for (std::size_t byte = 0; byte < 8; ++byte) {
      length[byte] = static_cast<char>(header.size() >> (8 * byte) & 0xffU);
    }
    return length + header + std::string(data_bytes, '\0');
  }

  /// The message with which a file is refused.
  std::string refusal(std::string const& bytes) const {
    fs::path const path = directory_.write("forged.safetensors", bytes);
    return refusal_of(path);
  }
  std::string refusal(std::string const& header, std::size_t data_bytes) const {
    return refusal(file_of(header, data_bytes));
  }
  static std::string refusal_of(fs::path const& place) {
    return message_of<DataError>([&] { SafetensorsFiles::open(place); });
  }

  static std::vector<float> read_all(ForeignTensors const& files, std::string const& name) {
    std::vector<float> values(static_cast<std::size_t>(files.tensors().at(name).elements()));
    files.read(name, {0, std::ssize(values)}, values);
    return values;
  }

  /// The elements that safetensors_files.py gives a tensor, before they are rounded to its dtype.
  static std::vector<float> golden_values(ForeignTensor const& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((static_cast<double>(i) - 3) / 7);
    }
    return values;
  }

  /// Writes tensors with the golden values into out/.
  fs::path write_golden(SafetensorsWriter::Tensors const& tensors, std::int64_t max_shard_bytes) const {
    SafetensorsWriter writer(directory_ / "out", tensors, max_shard_bytes);
    for (auto const& [name, tensor] : tensors) {
      writer.write(golden_values(tensor));
    }
    writer.finish();
    return directory_ / "out";
  }

  /// One tensor of these elements in forged.safetensors, as the files have them.
  fs::path write_elements(std::string const& dtype, std::string const& bytes, std::size_t count) const {
    std::string const header = R"({"weight":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(count) +
                               R"(],"data_offsets":[0,)" + std::to_string(bytes.size()) + "]}}";
    return directory_.write("forged.safetensors", file_of(header, 0) + bytes);
  }

  fs::path const golden_ = fs::path(HEDDLE_TEST_DATA) / "exchange";
  TemporaryDirectory directory_;
  SafetensorsWriter::Tensors const golden_model_{{"decoder.weight", {{3, 5}, "float16"}},
                                                 {"scale", {{}, "float32"}},
                                                 {"encoder.weight", {{2, 3}, "float32"}},
                                                 {"empty", {{0, 4}, "bfloat16"}},
                                                 {"a \"quoted\" \\ name of ümläuts", {{7}, "bfloat16"}},
                                                 {"encoder.bias", {{9}, "bfloat16"}}};
  SafetensorsWriter::Tensors const golden_shards_{{"one", {{8}, "float32"}},
                                                  {"large", {{20}, "float32"}},
                                                  {"two", {{10}, "bfloat16"}},
                                                  {"three", {{2, 3}, "float16"}},
                                                  {"four", {{4, 2}, "float32"}}};
};

/// A tensor of eight bytes, "a", for headers that have another, and the end of the header.
constexpr char const* good_entry = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(SafetensorsTest, TheLibrarysFileIsReadExactly) {
  auto const files = SafetensorsFiles::open(golden_ / "model.safetensors");
  EXPECT_EQ(files.tensors().size(), golden_model_.size());
  EXPECT_THAT(files.files(), ElementsAre(golden_ / "model.safetensors"));
  for (auto const& [name, tensor] : golden_model_) {
    EXPECT_EQ(files.tensors().at(name).dtype, tensor.dtype);
    EXPECT_EQ(files.tensors().at(name).shape, tensor.shape);
  }
  EXPECT_EQ(read_all(files, "encoder.weight"), golden_values({{6}, ""}));
  EXPECT_EQ(read_all(files, "scale"), golden_values({{1}, ""}));
  EXPECT_TRUE(read_all(files, "empty").empty());
  // Elements 0, 4 and 5 of 1/7: -3/7, 1/7 and 2/7 of 8 and of 11 bits.
  std::vector<float> const bias = read_all(files, "encoder.bias");
  EXPECT_EQ(bias[0], -219 * 0x1p-9F);
  EXPECT_EQ(bias[4], 146 * 0x1p-10F);
  std::vector<float> const weight = read_all(files, "decoder.weight");
  EXPECT_EQ(weight[4], 1170 * 0x1p-13F);
  EXPECT_EQ(weight[5], 1170 * 0x1p-12F);
}

TEST_F(SafetensorsTest, AFileIsWrittenAsTheLibraryWritesIt) {
  fs::path const out = write_golden(golden_model_, SafetensorsWriter::default_shard_bytes);
  EXPECT_EQ(read_whole(out / "model.safetensors"), read_whole(golden_ / "model.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 1);
}

TEST_F(SafetensorsTest, ShardsAndTheirIndexAreWrittenAsTransformersWritesThem) {
  fs::path const out = write_golden(golden_shards_, 64);
  int files = 0;
  for (auto const& entry : fs::directory_iterator(golden_ / "sharded")) {
    EXPECT_EQ(read_whole(out / entry.path().filename()), read_whole(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 4);
  EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 4);
}

TEST_F(SafetensorsTest, ShardsAreReadThroughTheirIndex) {
  for (fs::path const& place : {golden_ / "sharded", golden_ / "sharded" / "model.safetensors.index.json"}) {
    auto const files = SafetensorsFiles::open(place);
    EXPECT_EQ(files.tensors().size(), golden_shards_.size());
    EXPECT_EQ(files.files().size(), 4U);
    EXPECT_EQ(files.files().front().filename(), "model.safetensors.index.json");
    for (char const* name : {"one", "large", "four"}) {
      EXPECT_EQ(read_all(files, name), golden_values(files.tensors().at(name))) << name;
    }
  }
}

TEST_F(SafetensorsTest, PiecesAreThoseOfTheWhole) {
  for (char const* dtype : {"float32", "bfloat16", "float16"}) {
    // More elements than are converted at once, written and read in pieces that fit nothing.
    SafetensorsWriter::Tensors const tensors{
        {"first", {{0}, dtype}}, {"weight", {{2, 70'001}, dtype}}, {"bias", {{11}, dtype}}};
    std::vector<float> values(140'002 + 11);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 256) - 128;  // exact in all three
    }
    fs::path const out = directory_ / dtype;
    SafetensorsWriter writer(out, tensors);
    for (std::span<float const> rest = values; !rest.empty();) {
      std::size_t const count = std::min<std::size_t>(rest.size(), 99'991);
      writer.write(rest.first(count));
      rest = rest.subspan(count);
    }
    writer.finish();
    auto const files = SafetensorsFiles::open(out);
    std::vector<float> const weight = read_all(files, "weight");
    EXPECT_TRUE(std::equal(weight.begin(), weight.end(), values.begin()));
    std::vector<float> part(70'000);
    files.read("weight", {3, 70'003}, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 3));
    EXPECT_EQ(read_all(files, "bias"), std::vector<float>(values.end() - 11, values.end()));
    EXPECT_THROW(files.read("bias", {3, 12}, std::span(part).first(9)), Error);
    EXPECT_THROW(files.read("bias", {3, 4}, part), Error);
    EXPECT_THROW(files.read("nothing", {0, 0}, {}), Error);
  }
}

TEST_F(SafetensorsTest, OtherTypesAreListedAndNotRead) {
  auto const files = SafetensorsFiles::open(golden_ / "buffers.safetensors");
  EXPECT_EQ(files.tensors().at("position_ids").dtype, "i64");
  EXPECT_EQ(files.tensors().at("mask").dtype, "bool");
  EXPECT_EQ(files.tensors().at("double").dtype, "f64");
  EXPECT_EQ(read_all(files, "weight"), golden_values({{4}, ""}));
  expect_data_error([&] { read_all(files, "position_ids"); },
                    "tensor \"position_ids\" is of dtype i64; float32, bfloat16 and float16 are read");
}

TEST_F(SafetensorsTest, AForgedLengthIsRefused) {
  expect_contains(refusal(""), "ends before the length of its header");
  expect_contains(refusal("\x10"), "ends before the length of its header");
  expect_contains(refusal(std::string(8, '\xff') + "{}"), "states a header of 18446744073709551615 bytes");
  expect_contains(refusal(file_of("{}  ", 0).substr(0, 11)), "states a header of 4 bytes, and the file has 3");
  std::string const length("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 100,000,001
  fs::resize_file(directory_.write("long.safetensors", length), 100'000'009);
  expect_contains(refusal_of(directory_ / "long.safetensors"), "states a header of 100000001 bytes");
  EXPECT_EQ(refusal("{}      ", 0), "");
}

TEST_F(SafetensorsTest, AForgedTextIsRefused) {
  expect_contains(refusal("", 0), "does not begin with '{'");
  expect_contains(refusal(" {}", 0), "does not begin with '{'");
  expect_contains(refusal("[]", 0), "does not begin with '{'");
  expect_contains(refusal(R"({"a":)", 0), "is not JSON");
  expect_contains(refusal("{} {}", 0), "trailing data after the JSON value");
  expect_contains(refusal(std::string("{}\0", 3), 0), "trailing data after the JSON value");
  expect_contains(refusal("{\"\xff\":{}}", 0), "is not UTF-8 at byte 2");
  expect_contains(refusal(R"({"\ud800":{}})", 0), "is not JSON");
  expect_contains(refusal(R"({"a\u0000b":{}})", 0), R"("a\u0000b" contains NUL)");
  expect_contains(refusal("{\"" + std::string(1001, 'n') + "\":{}}", 0), "a name of 1,001 bytes");
  expect_contains(refusal("{\"a\":" + std::string(100'000, '['), 0), "\"a\" is not an object");
  EXPECT_THAT(refusal("{\"\x1b[2J\":[]}", 0), AllOf(HasSubstr("not JSON"), Not(HasSubstr("\x1b"))));
  expect_contains(refusal(R"({"\u001b[2J":[]})", 0), R"("\u001b[2J" is not an object)");
}

TEST_F(SafetensorsTest, AnEntryThatIsNotATensorIsRefused) {
  auto const entry = [&](std::string const& fields) { return refusal("{\"a\":{" + fields + "}}", 8); };
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "");
  expect_contains(entry(R"("dtype":"F32","shape":[2])"), "tensor \"a\" lacks");
  expect_contains(entry(R"("dtype":"F32","data_offsets":[0,8])"), "lacks its dtype, its shape");
  expect_contains(entry(R"("shape":[2],"data_offsets":[0,8])"), "lacks its dtype");
  expect_contains(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), "its two data_offsets");
  expect_contains(entry(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "unknown dtype \"F31\"");
  expect_contains(entry(R"("dtype":"float32","shape":[2],"data_offsets":[0,8])"), "unknown dtype");
  for (char const* field :
       {R"("dtype":7)", R"("dtype":["F32"])", R"("shape":2)", R"("shape":[2.5])", R"("shape":["2"])",
        R"("shape":[[2]])", R"("shape":[{"b":2}])", R"("shape":[18446744073709551615])", R"("shape":[1e3])",
        R"("shape":[null])", R"("shape":[1],"shape":[1])", R"("dtype":"F32","dtype":"F32")", R"("data_offsets":{})",
        R"("other":[1])", R"("other":"F32")", R"("other":1)"}) {
    EXPECT_THAT(entry(field), AllOf(HasSubstr("the entry of tensor \"a\""), HasSubstr("each once"))) << field;
  }
  expect_contains(entry(R"("shape":{"b":2})"), "each once");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) {
    ones += ",1";
  }
  expect_contains(entry("\"shape\":[" + ones + "]"), "64 at most");
}

TEST_F(SafetensorsTest, ForgedShapesAndOffsetsAreRefused) {
  auto const tensor = [&](std::string const& dtype, std::string const& shape, std::string const& offsets) {
    return refusal(R"({"a":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}",
                   8);
  };
  expect_contains(tensor("F32", "-2", "0,8"), "impossible shape [-2]");
  expect_contains(tensor("F32", "-1,-2", "0,8"), "impossible shape [-1, -2]");
  expect_contains(tensor("F32", "4611686018427387906", "0,8"), "impossible shape");  // times 4: 8
  expect_contains(tensor("F32", "4294967296,4294967296", "0,0"), "impossible shape");
  expect_contains(tensor("F32", "0,4294967296,4294967296", "0,0"), "impossible shape");
  expect_contains(tensor("F4", "3", "0,1"), "impossible shape [3]");
  expect_contains(tensor("F32", "1000000000", "0,8"), "has 8 bytes where its shape [1000000000] and dtype F32");
  expect_contains(tensor("F16", "2", "0,8"), "has 8 bytes where its shape [2] and dtype F16 need 4");
  expect_contains(tensor("F32", "", "0,8"), "has 8 bytes where its shape [] and dtype F32 need 4");
  expect_contains(tensor("F32", "2", "8,0"), "data_offsets 8 and 0");
  expect_contains(tensor("F32", "2", "-8,0"), "data_offsets -8 and 0");
  expect_contains(tensor("F32", "2", "4,12"), "beyond the file's 8 bytes");
  expect_contains(tensor("F32", "2", "9223372036854775800,9223372036854775807"), "beyond the file's 8 bytes");
  EXPECT_EQ(tensor("F4", "4,4", "0,8"), "");
}

TEST_F(SafetensorsTest, TensorsCoverTheFileExactly) {
  EXPECT_EQ(refusal(std::string("{") + good_entry, 8), "");
  expect_contains(refusal(std::string("{") + good_entry, 9), "9 bytes after its header where the tensors need 8");
  expect_contains(refusal("{}", 1), "1 bytes after its header where the tensors need 0");
  auto const with = [&](std::string const& shape, std::string const& offsets, std::size_t bytes) {
    return refusal(R"({"b":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}," + good_entry,
                   bytes);
  };
  EXPECT_EQ(with("[1]", "[8,12]", 12), "");
  expect_contains(with("[1]", "[12,16]", 16), "tensor \"b\" leaves a gap after the bytes before it");
  expect_contains(with("[1]", "[4,8]", 8), "tensor \"b\" overlaps the bytes before it");
  expect_contains(with("[2]", "[0,8]", 8), "overlaps");
  EXPECT_EQ(with("[3,0]", "[8,8]", 8), "");
  EXPECT_EQ(with("[0]", "[0,0]", 8), "");
  expect_contains(with("[0]", "[4,4]", 8), "overlaps");
}

TEST_F(SafetensorsTest, NamesComeOnce) {
  expect_contains(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)" + std::string(good_entry), 8),
                  "its header has tensor \"a\" twice");
  expect_contains(
      refusal(R"({"\u0061":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)" + std::string(good_entry), 8),
      "its header has tensor \"a\" twice");
  expect_contains(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "has __metadata__ twice");
  expect_contains(refusal(R"({"__metadata__":{"k":"v","k":"v"}})", 0), "__metadata__ has a key twice");
  expect_contains(refusal(R"({"__metadata__":{"k":1}})", 0), "a value in __metadata__ is not a string");
  expect_contains(refusal(R"({"__metadata__":{"k":["v"]}})", 0), "a value in __metadata__ is not a string");
  expect_contains(refusal(R"({"__metadata__":"pt"})", 0), "\"__metadata__\" is not an object");
}

TEST_F(SafetensorsTest, AMillionNamesAreEnough) {
  for (std::string const& begin : {std::string("{"), std::string(R"({"__metadata__":{)")}) {
    std::string header = begin;
    for (int i = 0; i <= 1'000'000; ++i) {
      header += "\"" + std::to_string(i) + (begin.size() == 1 ? "\":{}," : "\":\"\",");
    }
    header.back() = '}';
    expect_contains(refusal(header + (begin.size() == 1 ? "" : "}"), 0),
                    begin.size() == 1 ? "has more tensors than a model has" : "__metadata__ has more keys");
  }
}

TEST_F(SafetensorsTest, ValuesThatAreNotFiniteAreRefused) {
  auto const message = [&](std::string const& dtype, std::string const& bytes) {
    auto const files = SafetensorsFiles::open(write_elements(dtype, bytes, 3));
    std::vector<float> last(2);
    return message_of<DataError>([&] { files.read("weight", {1, 3}, last); });
  };
  expect_contains(message("F32", std::string("\0\0\x80\x7f\0\0\0\0\0\0\x80\xff", 12)),
                  "\"weight\" has -inf at element 2");
  expect_contains(message("F32", std::string("\0\0\0\0\0\0\xc0\x7f\0\0\0\0", 12)), "\"weight\" has nan at element 1");
  expect_contains(message("F16", std::string("\0\0\0\x7c\0\0", 6)), "\"weight\" has inf at element 1");
  expect_contains(message("BF16", std::string("\0\0\x80\x7f\0\0", 6)), "\"weight\" has inf at element 1");
  EXPECT_EQ(message("F16", std::string("\0\x7c\0\0\0\0", 6)), "");  // element 0 is not read
}

TEST_F(SafetensorsTest, AFileThatShrinksIsAnError) {
  for (char const* dtype : {"F32", "BF16"}) {
    std::string const bytes(3U * (dtype[0] == 'F' ? 4 : 2), '\0');
    fs::path const path = write_elements(dtype, bytes, 3);
    auto const files = SafetensorsFiles::open(path);
    fs::resize_file(path, fs::file_size(path) - 1);
    expect_data_error([&] { read_all(files, "weight"); }, "ends within tensor \"weight\"");
  }
}

TEST_F(SafetensorsTest, OnlyRegularFilesAreOpened) {
  expect_contains(refusal_of(directory_ / "nothing.safetensors"), "does not exist");
  expect_contains(refusal_of(directory_.path()), "has neither model.safetensors nor model.safetensors.index.json");
  fs::path const model = directory_ / "model.safetensors";
  fs::create_directory(model);
  expect_contains(refusal_of(directory_.path()), "model.safetensors: is not a regular file");
  fs::remove(model);
  ASSERT_EQ(::mkfifo(model.c_str(), 0600), 0);
  expect_contains(refusal_of(directory_.path()), "model.safetensors: is not a regular file");
  fs::remove(model);
  fs::create_symlink(golden_ / "model.safetensors", model);
  expect_contains(refusal_of(directory_.path()), {"is a symbolic link", "cp -rL"});
}

TEST_F(SafetensorsTest, PicklesAreNotRead) {
  for (char const* name : {"pytorch_model.bin", "model.pt", "pytorch_model-00001-of-00002.bin"}) {
    fs::path const path = directory_.write(name, "PK");
    for (fs::path const& place : {path, directory_.path()}) {
      expect_contains(refusal_of(place), {name, "is a pickle", "save_pretrained(OUT, safe_serialization=True)"});
    }
    fs::remove(path);
  }
}

TEST_F(SafetensorsTest, AForgedIndexIsRefused) {
  std::string const a = std::string("{") + good_entry;
  directory_.write("a.safetensors", file_of(a, 8));
  directory_.write("b.safetensors", file_of(R"({"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4));
  directory_.write("same.safetensors", file_of(a, 8));
  fs::create_directory(directory_ / "sub");
  fs::create_symlink(golden_ / "model.safetensors", directory_ / "link.safetensors");
  auto const index = [&](std::string const& weights) {
    directory_.write("model.safetensors.index.json",
                     R"({"metadata":{"total_size":12.0,"x":[{}]},"weight_map":)" + weights + "}");
    return refusal_of(directory_.path());
  };
  EXPECT_EQ(index(R"({"a":"a.safetensors","b":"b.safetensors"})"), "");
  for (std::string const name : {"/etc/x.safetensors", "../a.safetensors", "sub/a.safetensors", "..", "", "a.bin",
                                 R"(a\\b.safetensors)", R"(a\u0000.safetensors)"}) {
    EXPECT_THAT(index(R"({"a":")" + name + "\"}"),
                AllOf(HasSubstr("tensor \"a\""), HasSubstr("must map to a plain file name ending in .safetensors")))
        << name;
  }
  expect_contains(index(R"({"a":7})"), "must map to a plain file name");
  expect_contains(index(R"({"a":["a.safetensors"]})"), "must map to a plain file name");
  expect_contains(index(R"({"a":"link.safetensors"})"), "is a symbolic link");
  expect_contains(index(R"({"a":"c.safetensors"})"), "c.safetensors: does not exist");
  expect_contains(index(R"({"a":"a.safetensors","b":"a.safetensors"})"), "for tensor \"b\", which is not in it");
  expect_contains(index(R"({"b":"a.safetensors","a":"b.safetensors"})"), "for tensor \"a\", which is not in it");
  expect_contains(index(R"({"a":"a.safetensors","c":"same.safetensors"})"),
                  {"same.safetensors: has tensor \"a\"", "a.safetensors has"});
  expect_contains(index(R"({"a":"a.safetensors","a":"b.safetensors"})"), "tensor \"a\" twice");
  expect_contains(index(R"({"a\u0000":"a.safetensors"})"), "contains NUL");
  expect_contains(index("{}"), "it has no weight_map");
  expect_contains(index("["), "is not JSON");
}

TEST_F(SafetensorsTest, AnIndexMustBeARegularFileOfLimitedLength) {
  fs::path const index = directory_ / "model.safetensors.index.json";
  ASSERT_EQ(::mkfifo(index.c_str(), 0600), 0);
  expect_contains(refusal_of(directory_.path()), "is not a regular file");
  fs::remove(index);
  fs::create_symlink(golden_ / "sharded" / "model.safetensors.index.json", index);
  expect_contains(refusal_of(directory_.path()), "is a symbolic link");
  fs::remove(index);
  fs::resize_file(directory_.write(index.filename(), "{"), 100'000'001);
  expect_contains(refusal_of(directory_.path()), "is longer than 100,000,000 bytes");
}

TEST_F(SafetensorsTest, NumbersThatTheFileCannotHaveAreNotWritten) {
  struct Case {
    char const* dtype;
    float value;
    bool good;
  };
  float const infinity = std::numeric_limits<float>::infinity();
  float const max = std::numeric_limits<float>::max();
  for (Case const& test :
       {Case{"float32", max, true}, Case{"float32", infinity, false}, Case{"float32", std::nanf(""), false},
        Case{"bfloat16", 0x1.fep127F, true}, Case{"bfloat16", max, false}, Case{"bfloat16", std::nanf(""), false},
        Case{"float16", 65519.99F, true}, Case{"float16", -65504, true}, Case{"float16", -65520, false},
        Case{"float16", std::nanf(""), false}}) {
    SafetensorsWriter writer(directory_ / "out", {{"bias", {{4}, test.dtype}}});
    writer.write(std::vector<float>{1});
    std::vector<float> const values{1, test.value};
    std::string const message = message_of<DataError>([&] { writer.write(values); });
    if (test.good) {
      EXPECT_EQ(message, "") << test.dtype << ' ' << test.value;
    } else {
      expect_contains(message, {"tensor \"bias\" has ", "at element 2", test.dtype});
    }
  }
}

TEST_F(SafetensorsTest, AModelIsWrittenWholeOrNotAtAll) {
  {
    SafetensorsWriter writer(directory_ / "out" / "new", golden_shards_, 64);
    writer.write(std::vector<float>(28 + 9, 1.0F));
    expect_error([&] { writer.finish(); }, "tensor \"two\" has 9 of its 10 elements");
    expect_error([&] { writer.write(std::vector<float>(16)); }, "1 elements more");
  }
  EXPECT_TRUE(fs::is_empty(directory_ / "out" / "new"));
  fs::remove(directory_ / "out" / "new");
  { SafetensorsWriter const writer(directory_ / "out", golden_shards_, 64); }
  EXPECT_TRUE(fs::is_empty(directory_ / "out"));
  write_golden({}, 64);
  EXPECT_TRUE(SafetensorsFiles::open(directory_ / "out").tensors().empty());
  expect_error([&] { write_golden({}, 64); }, "model.safetensors: is there already");
  EXPECT_EQ(read_whole(directory_ / "out" / "model.safetensors").size() % 8, 0U);
}

TEST_F(SafetensorsTest, TensorsThatNoFileHasAreNotWritten) {
  auto const message = [&](SafetensorsWriter::Tensors const& tensors) {
    return message_of<DataError>([&] { SafetensorsWriter(directory_ / "out", tensors); });
  };
  expect_contains(message({{"a", {{1}, "float32"}}, {"a", {{2}, "float32"}}}), "tensor \"a\" comes twice");
  expect_contains(message({{"__metadata__", {{1}, "float32"}}}), "name of the metadata");
  expect_contains(message({{std::string("a\0", 2), {{1}, "float32"}}}), "contains NUL");
  expect_contains(message({{"a", {{1}, "i64"}}}), "dtype i64; float32, bfloat16 and float16 are written");
  expect_contains(message({{"a", {{-1}, "float32"}}}), "impossible shape [-1]");
  EXPECT_TRUE(directory_.names().empty());
}

}  // namespace
}  // namespace heddle
