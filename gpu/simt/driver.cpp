// Runs the launches of a job file in a program of its own, for the sanitizer builds. One command per line:
//   buffer NAME BYTES FILE          allocate exactly BYTES on the heap and fill them from FILE
//   launch ENTRY BLOCKS THREADS ORDER {NAME OFFSET}...    arguments are buffers with an offset in bytes
//   save NAME FILE
// Exit status: 0, or 1 with the checker's message on stderr; a sanitizer's report sets its own.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime.h"

namespace {

struct Buffer {
  char *data;
  size_t size;
};
std::map<std::string, Buffer> buffers;

int fail(const std::string &message) {
  fprintf(stderr, "eqsat simt: %s\n", message.c_str());
  return 1;
}

int make_buffer(std::istringstream &words) {
  std::string name, file;
  size_t size;
  words >> name >> size >> file;
  Buffer buffer{(char *)malloc(size), size};
  std::ifstream in(file, std::ios::binary);
  if (!in.read(buffer.data, size)) return fail("cannot read " + file);
  buffers[name] = buffer;
  return 0;
}

int launch(std::istringstream &words) {
  std::string entry, name;
  int blocks, threads;
  unsigned order;
  size_t offset;
  words >> entry >> blocks >> threads >> order;
  std::vector<void *> pointers;
  while (words >> name >> offset) pointers.push_back(buffers.at(name).data + offset);
  std::vector<void *> args;
  for (void *&pointer : pointers) args.push_back(&pointer);
  typedef int (*Launcher)(void **, int, int, unsigned);
  Launcher launcher = (Launcher)dlsym(RTLD_DEFAULT, (entry + "__launch").c_str());
  if (!launcher) return fail("no entry point " + entry);
  return launcher(args.data(), blocks, threads, order) ? fail(entry + ": " + eq_simt_error()) : 0;
}

int save(std::istringstream &words) {
  std::string name, file;
  words >> name >> file;
  const Buffer &buffer = buffers.at(name);
  std::ofstream out(file, std::ios::binary);
  return out.write(buffer.data, buffer.size) ? 0 : fail("cannot write " + file);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return fail("usage: program JOB");
  std::ifstream job(argv[1]);
  for (std::string line, command; std::getline(job, line);) {
    std::istringstream words(line);
    words >> command;
    const int status = command == "buffer" ? make_buffer(words) : command == "launch" ? launch(words) : save(words);
    if (status) return status;
  }
  return 0;
}
