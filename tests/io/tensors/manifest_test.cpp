
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/tensors/manifest.hpp>

#include "digest_file.hpp"

namespace heddle {
namespace {

class ManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("a.bin", std::string(1000, 'a'));
    std::string large(static_cast<std::size_t>(2 * manifest_block_bytes + 7), 'b');
    write("b.bin", large);
    write("empty", "");
    commit();
  }
  void write(std::string const& name, std::string const& content) const {
    fs::remove(directory_ / name);  // some file systems sync a file that is truncated and written again: slow
    std::ofstream(directory_ / name, std::ios::binary) << content;
  }
  void flip(std::string const& name, std::size_t byte, int bit) const {
    std::string content = read_whole(directory_ / name);
    content.at(byte) = static_cast<char>(content[byte] ^ (1 << bit));
    write(name, content);
  }
  void commit() const {
    Manifest const manifest{
        42, {digest_file(directory_ / "a.bin"), digest_file(directory_ / "b.bin"), digest_file(directory_ / "empty")}};
    write(manifest_file_name, manifest_text(manifest));
  }
  Manifest verify() const {
    Manifest manifest = verify_file_sizes(directory_);
    for (FileDigest const& file : manifest.files) {
      require_equal(directory_ / file.name, file);
    }
    return manifest;
  }
  std::string verify_error() const {
    return message_of<DataError>([&] { verify(); });
  }

  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path();
};

TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update(text_bytes(std::string("a")));
  pieces.update(text_bytes(std::string("bc")));
  EXPECT_EQ(pieces.finish(), sha256("abc"));
}

TEST_F(ManifestTest, RoundTrips) {
  Manifest const manifest = verify();
  EXPECT_EQ(manifest.step, 42);
  ASSERT_EQ(manifest.files.size(), 3U);
  EXPECT_EQ(manifest.files[0].blocks, std::vector<std::string>{sha256(std::string(1000, 'a'))});
  EXPECT_EQ(manifest.files[1].bytes, 2 * manifest_block_bytes + 7);
  EXPECT_EQ(manifest.files[1].blocks.size(), 3U);
  EXPECT_EQ(manifest.files[1].blocks[2], sha256("bbbbbbb"));
  EXPECT_TRUE(manifest.files[2].blocks.empty());
}

TEST_F(ManifestTest, NoticesEveryBitOfTheManifestItself) {
  std::size_t const bytes = read_whole(directory_ / manifest_file_name).size();
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    int const bit = static_cast<int>(byte % 8);
    flip(manifest_file_name, byte, bit);
    ASSERT_THAT(verify_error(), HasSubstr(manifest_file_name)) << "byte " << byte << " bit " << bit;
    flip(manifest_file_name, byte, bit);
  }
  EXPECT_EQ(verify_error(), "");
}

TEST_F(ManifestTest, NamesTheDamagedBlock) {
  flip("b.bin", static_cast<std::size_t>(manifest_block_bytes) + 3, 7);
  expect_contains(verify_error(),
                  "b.bin: what was read back is not what was written, in bytes 4194304 to 8388607 "
                  "(block 2 of 3)");
}

TEST_F(ManifestTest, NoticesLengthsMissingAndExtraFiles) {
  fs::resize_file(directory_ / "a.bin", 999);
  expect_contains(verify_error(), "a.bin: has 999 bytes where MANIFEST.json states 1000");
  fs::remove(directory_ / "a.bin");
  expect_contains(verify_error(), "a.bin: does not exist");
  fs::create_symlink("b.bin", directory_ / "a.bin");
  expect_contains(verify_error(), "a.bin: is a symbolic link");
  fs::remove(directory_ / "a.bin");
  fs::create_directory(directory_ / "a.bin");
  expect_contains(verify_error(), "a.bin: is not a regular file");
  fs::remove(directory_ / "a.bin");
  write("a.bin", std::string(1000, 'a'));
  EXPECT_EQ(verify_error(), "");
  write("c.bin", "");
  expect_contains(verify_error(), "c.bin: is not listed in MANIFEST.json");
  fs::remove(directory_ / "c.bin");
  fs::remove(directory_ / manifest_file_name);
  expect_contains(verify_error(), "MANIFEST.json: does not exist");
}

TEST_F(ManifestTest, NamesAnotherVersionOfTheFormat) {
  std::string text = read_whole(directory_ / manifest_file_name);
  Manifest manifest = read_manifest(directory_);
  manifest.version = 1;
  write(manifest_file_name, manifest_text(manifest));
  expect_contains(verify_error(),
                  "MANIFEST.json: is of checkpoint format version 1, and this Heddle reads the "
                  "versions 3 to 4; continue with the Heddle that wrote it, or start over");
  text.replace(text.find("\"version\": 4"), 12, "\"version\": 1");
  write(manifest_file_name, text);
  EXPECT_THAT(verify_error(), HasSubstr("is damaged")) << "a version that the manifest's digest does not cover";
}

TEST_F(ManifestTest, RefusesCraftedManifests) {
  std::string const digest(64, '0');
  auto const refused = [&](Manifest const& manifest) {
    write(manifest_file_name, manifest_text(manifest));
    return verify_error();
  };
  expect_contains(refused({1, {{"../a.bin", 1, {digest}}}}), "not a plain name");
  expect_contains(refused({1, {{".hidden", 1, {digest}}}}), "not a plain name");
  expect_contains(refused({1, {{"a.bin", 1, {digest}}, {"a.bin", 1, {digest}}}}), "named twice");
  expect_contains(refused({1, {{"a.bin", 1000, {}}}}), "0 digests for the 1000 bytes");
  expect_contains(refused({1, {{"a.bin", -5, {}}}}), "digests");
  expect_contains(refused({1, {{"a.bin", std::numeric_limits<std::int64_t>::max(), {}}}}), "0 digests for the 9");
  expect_contains(refused({1, {}}), "no files");
  write(manifest_file_name, std::string(100000, '['));
  expect_contains(verify_error(), "not a manifest");
  write(manifest_file_name, "");
  expect_contains(verify_error(), "not a manifest");
}

}  // namespace
}  // namespace heddle
