#include <hdf5.h>

#include <heddle/io/hdf5/hdf5.hpp>
#include <thread>

#include "test.hpp"

namespace heddle::hdf5 {
namespace {

class Hdf5Test : public ::testing::Test {
 protected:
  /// The error message of opening the file, or "".
  std::string open_error() const {
    return message_of<DataError>([&] { File::open(file_); });
  }

  hid_t raw_file() const { return H5Fcreate(file_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT); }

  /// A dataset "d" made with the C API: `creation` and `space` are closed here.
  void craft(hid_t type, hid_t space, hid_t creation, bool write = false) const {
    hid_t const file = raw_file();
    hid_t const dataset = H5Dcreate2(file, "d", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    ASSERT_GE(dataset, 0);
    if (write) {
      std::vector<double> zeros(1000);
      ASSERT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), 0);
    }
    H5Dclose(dataset);
    H5Sclose(space);
    if (creation != H5P_DEFAULT) {
      H5Pclose(creation);
    }
    H5Fclose(file);
  }

  static hid_t space_of(std::vector<hsize_t> const& extents) {
    return H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_ / "file.h5";
};

template <typename T>
void write_and_read_back(Group& group, std::string const& name) {
  std::vector<T> values(24);
  std::iota(values.begin(), values.end(), T{3});
  group.write_array<T>(name, {2, 3, 4}, values);
  Array const dataset = group.array(name);
  EXPECT_EQ(dataset.type(), element_type_of<T>());
  EXPECT_EQ(dataset.shape(), (Extents{2, 3, 4}));
  EXPECT_EQ(dataset.read<T>(), values);
  EXPECT_EQ(dataset.read<T>(1, 1), std::vector<T>(values.begin() + 12, values.end()));
}

TEST_F(Hdf5Test, EveryElementTypeRoundTrips) {
  File file = File::create(file_);
  write_and_read_back<std::int32_t>(file, "i32");
  write_and_read_back<std::int64_t>(file, "i64");
  write_and_read_back<float>(file, "f32");
  write_and_read_back<double>(file, "f64");
  write_and_read_back<std::uint8_t>(file, "u8");
  file.close();
  File const again = File::open(file_);
  EXPECT_THAT(again.names(), ElementsAre("f32", "f64", "i32", "i64", "u8"));
  EXPECT_EQ(again.array("i64").read<std::int64_t>().at(23), 26);
}

TEST_F(Hdf5Test, ReadsRows) {
  File file = File::create(file_);
  std::vector<std::int32_t> const values{1, 2, 3, 4, 5, 6, 7, 8};
  Array array = file.create_array("d", ElementType::int32, {4, 2});
  EXPECT_THROW(array.write<std::int32_t>(std::span(values).first(6)), DataError);
  array.write<std::int32_t>(values);
  EXPECT_THAT(array.read<std::int32_t>(1, 2), ElementsAre(3, 4, 5, 6));
  EXPECT_TRUE(array.read<std::int32_t>(4, 0).empty());
  EXPECT_THROW(array.read<std::int32_t>(3, 2), DataError);
  EXPECT_THROW(array.read<std::int32_t>(-1, 1), DataError);
  EXPECT_THROW(array.read<std::int64_t>(), DataError);
  std::vector<std::uint8_t> bytes;
  array.read_bytes(3, 1, bytes);
  EXPECT_THAT(bytes, ElementsAre(7, 0, 0, 0, 8, 0, 0, 0));
}

template <typename T>
std::vector<std::uint8_t> bytes_of(std::vector<T> const& values) {
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

TEST_F(Hdf5Test, AppendsRowsAcrossChunks) {
  File file = File::create(file_);
  std::vector<std::int32_t> expected;
  {
    Array dataset = file.create_extendible_array("tokens", ElementType::int32, {16});
    for (std::int32_t block = 0; block < 9; ++block) {
      std::vector<std::int32_t> const rows(static_cast<std::size_t>(block), block);
      dataset.append_bytes(bytes_of(rows));
      expected.insert(expected.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(dataset.shape(), Extents{36});
    Array pairs = file.create_extendible_array("pairs", ElementType::float64, {8, 2});
    pairs.append_bytes(bytes_of(std::vector<double>{1, 2, 3, 4}));
    EXPECT_THROW(pairs.append_bytes(bytes_of(std::vector<double>{1})), DataError);
    Array fixed = file.create_array("fixed", ElementType::float64, {2});
    EXPECT_THROW(fixed.append_bytes(bytes_of(std::vector<double>{1, 2})), DataError);
    fixed.write<double>(std::vector<double>{1, 2});
    file.create_extendible_array("none", ElementType::float32, {16});
  }
  file.close();
  File const again = File::open(file_);
  EXPECT_EQ(again.array("tokens").read<std::int32_t>(), expected);
  EXPECT_THAT(again.array("pairs").read<double>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(again.array("none").read<float>().empty());
}

TEST_F(Hdf5Test, AttributesKeepTypeAndValue) {
  File file = File::create(file_);
  file.set_attribute("format", "größer");
  file.set_attribute("empty", "");
  file.set_attribute("step", std::int64_t{-5});
  file.set_attribute("seed", ~std::uint64_t{0});
  file.set_attribute("loss", 0.1);
  file.close();
  File const again = File::open(file_);
  EXPECT_EQ(again.attribute<std::string>("format"), "größer");
  EXPECT_EQ(again.attribute<std::string>("empty"), "");
  EXPECT_EQ(again.attribute<std::int64_t>("step"), -5);
  EXPECT_EQ(again.attribute<std::uint64_t>("seed"), ~std::uint64_t{0});
  EXPECT_EQ(again.attribute<double>("loss"), 0.1);
  EXPECT_TRUE(again.has_attribute("loss"));
  EXPECT_FALSE(again.has_attribute("lost"));
  EXPECT_THROW(again.attribute<std::int64_t>("lost"), DataError);
  EXPECT_THROW(again.attribute<std::int64_t>("loss"), DataError);
  EXPECT_THROW(again.attribute<std::string>("step"), DataError);
}

TEST_F(Hdf5Test, ErrorsNameFileAndObject) {
  File file = File::create(file_);
  file.create_group("a").write_array<float>("b", {2}, std::vector<float>{1, 2});
  EXPECT_THROW(File::create(file_), Error);
  try {
    file.array("a/c");
    FAIL() << "a missing dataset was opened";
  } catch (DataError const& error) {
    expect_contains(error.what(), file_.string() + ": /a/c");
  }
  EXPECT_NO_THROW(file.array("a/b").expect(ElementType::float32, {any_extent}));
  EXPECT_THROW(file.array("a/b").expect(ElementType::float32, {3}), DataError);
  EXPECT_THROW(file.array("a/b").expect(ElementType::int32, {2}), DataError);
  expect_data_error(
      [&] {
        file.array("a/b").expect(ElementType::int32, {2, any_extent});
      },
      "expected int32 [2, any extent]");
  EXPECT_TRUE(file.contains("a/b"));
  EXPECT_FALSE(file.contains("x/b"));
  {
    Group const open_group = file.group("a");
    EXPECT_THROW(file.close(), DataError);
  }
}

TEST_F(Hdf5Test, RefusesWhatIsNoHdf5File) {
  expect_contains(open_error(), "does not exist");
  std::ofstream(file_) << "text";
  expect_contains(open_error(), "could not open the file");
}

TEST_F(Hdf5Test, RefusesExternalStorage) {
  std::ofstream(directory_ / "secret") << std::string(80, 'x');
  hid_t const creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(creation, (directory_ / "secret").c_str(), 0, 80);
  craft(H5T_IEEE_F64LE, space_of({10}), creation);
  expect_contains(open_error(), "external storage");
}

TEST_F(Hdf5Test, RefusesVirtualDatasets) {
  hid_t const creation = H5Pcreate(H5P_DATASET_CREATE);
  hid_t const space = space_of({10});
  H5Pset_virtual(creation, space, "other.h5", "/d", space);
  craft(H5T_IEEE_F64LE, space, creation);
  expect_contains(open_error(), "virtual");
}

TEST_F(Hdf5Test, RefusesSoftAndExternalLinks) {
  hid_t file = raw_file();
  H5Lcreate_soft("/nowhere", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  expect_contains(open_error(), "/soft: is a soft or external link");
  file = raw_file();
  H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Lcreate_external("other.h5", "/d", file, "g/outside", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  expect_contains(open_error(), "/g/outside: is a soft or external link");
}

TEST_F(Hdf5Test, RefusesCirclesOfGroupsAndNamedTypes) {
  hid_t file = raw_file();
  H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Lcreate_hard(file, "/", file, "g/again", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  expect_contains(open_error(), "circle");
  file = raw_file();
  hid_t const type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Tclose(type);
  H5Fclose(file);
  expect_contains(open_error(), "neither a group nor a dataset");
}

TEST_F(Hdf5Test, RefusesOtherTypesAndShapes) {
  craft(H5T_IEEE_F32BE, space_of({10}), H5P_DEFAULT);
  expect_contains(open_error(), "element type");
  hid_t const reference = H5Tcopy(H5T_STD_REF_OBJ);
  craft(reference, space_of({10}), H5P_DEFAULT);
  H5Tclose(reference);
  expect_contains(open_error(), "element type");
  craft(H5T_IEEE_F64LE, H5Screate(H5S_SCALAR), H5P_DEFAULT);
  expect_contains(open_error(), "not an array");
  craft(H5T_IEEE_F64LE, space_of(std::vector<hsize_t>(9, 1)), H5P_DEFAULT, true);
  expect_contains(open_error(), "more than 8 dimensions");
}

TEST_F(Hdf5Test, RefusesExtentsThatTheFileDoesNotHold) {
  craft(H5T_IEEE_F64LE, space_of({hsize_t{1} << 40}), H5P_DEFAULT);
  expect_contains(open_error(), "need");
  hid_t const chunked = H5Pcreate(H5P_DATASET_CREATE);
  std::vector<hsize_t> const square{100, 100};
  H5Pset_chunk(chunked, 2, square.data());
  craft(H5T_IEEE_F64LE, space_of({hsize_t{1} << 31, hsize_t{1} << 31}), chunked);
  expect_contains(open_error(), "impossible extents");
  std::vector<hsize_t> const chunk{100};
  hid_t const sparse = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(sparse, 1, chunk.data());
  craft(H5T_IEEE_F64LE, space_of({1000}), sparse, false);
  expect_contains(open_error(), "0 of its 10 chunks");
}

TEST_F(Hdf5Test, RefusesFiltersWhichMakeSmallFilesLarge) {
  std::vector<hsize_t> const chunk{100};
  for (int const filter : {0, 1, 2, 3}) {
    hid_t const creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, chunk.data());
    if (filter == 0) {
      H5Pset_deflate(creation, 6);
    } else if (filter == 1) {
      H5Pset_shuffle(creation);
    } else if (filter == 2) {
      H5Pset_fletcher32(creation);
    } else {
      H5Pset_filter(creation, 32001, H5Z_FLAG_OPTIONAL, 0, nullptr);
    }
    craft(H5T_IEEE_F64LE, space_of({1000}), creation, true);
    expect_contains(open_error(), "/d: is compressed or otherwise filtered");
  }
}

TEST_F(Hdf5Test, EqualContentMakesEqualFiles) {
  std::string bytes[2];
  for (std::string& content : bytes) {
    std::filesystem::remove(file_);
    File file = File::create(file_);
    file.create_group("g").write_array<float>("d", {3}, std::vector<float>{1, 2, 3});
    file.close();
    std::ifstream stream(file_, std::ios::binary);
    content.assign(std::istreambuf_iterator<char>(stream), {});
  }
  EXPECT_FALSE(bytes[0].empty());
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(Hdf5Test, ThreadsTakeTurns) {
  {
    File file = File::create(file_);
    file.write_array<std::int32_t>("values", {3}, std::vector<std::int32_t>{1, 2, 3});
    file.close();
  }
  auto const use = [&] {
    for (int time = 0; time < 1500; ++time) {
      File const file = File::open(file_);
      EXPECT_THAT(file.array("values").read<std::int32_t>(), ElementsAre(1, 2, 3));
      expect_data_error([&] { file.array("other"); }, "other: HDF5 could not open");
      File made = File::create(std::make_shared<FileImage>(), "made");
      made.set_attribute("time", std::int64_t{time});
      EXPECT_EQ(made.attribute<std::int64_t>("time"), time);
      made.close();
    }
  };
  std::thread other(use);
  use();
  other.join();
}

}  // namespace
}  // namespace heddle::hdf5
