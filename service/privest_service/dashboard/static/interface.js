// Swagger UI over this service's own interface. Nothing is sent to anybody else, a validator included.
document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
const place = document.getElementById("interface");
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.url,
  validatorUrl: null,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
});
